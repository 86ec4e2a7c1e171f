"""Personal data: where it is, where it goes, and what looks like it."""
