"""Feeds read in Spark: exactly what lies between two places, appended to a table once."""
