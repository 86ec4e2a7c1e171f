"""What is remembered of changes beside a table's rows, how far each source has come, and what may be forgotten."""
