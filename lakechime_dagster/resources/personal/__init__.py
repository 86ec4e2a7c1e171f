"""Personal data of a lake, and access requests."""
