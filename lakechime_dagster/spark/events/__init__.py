"""Streams of JSON events in Spark: kept as they came, and brought into a table for each type."""
