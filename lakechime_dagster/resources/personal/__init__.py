"""Personal data: where it goes, who looks for it, and what a person may know."""
