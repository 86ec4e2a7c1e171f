"""Columns and types of a database's table as connectors and tools write them, and what becomes of the lake's when they change."""
