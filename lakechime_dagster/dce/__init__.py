"""Data change events: what changed in which table, as plain values."""
