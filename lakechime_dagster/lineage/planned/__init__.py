"""What the code says before any run, and what a change of it does."""
