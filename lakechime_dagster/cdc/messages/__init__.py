"""The messages of each tool's envelope, how they are read as changes, and the table that keeps them as they came."""
