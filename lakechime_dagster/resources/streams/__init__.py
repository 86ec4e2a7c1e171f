"""Streams of events and the tables of their types: what is there of them, and what is asked of them."""
