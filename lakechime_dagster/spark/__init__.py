"""Spark: reading ranges of tables, bringing tables up to date, committing; drivers and followed tables in rooms of their own."""
