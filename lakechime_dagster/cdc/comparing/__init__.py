"""Comparing a table with its database, and messages by which what differs, or was never told, is put right."""
