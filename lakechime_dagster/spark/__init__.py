"""Spark: reading ranges of tables, bringing tables up to date, committing; and drivers."""
