"""Data change events, triggers and exactly-once incremental runs for lake tables, in Dagster."""
