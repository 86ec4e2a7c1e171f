"""Spark: the driver, and in their own modules reading ranges, committing and merging."""
