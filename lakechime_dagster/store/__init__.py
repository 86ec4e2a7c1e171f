"""The relational store: events, their registration and retention, and the repositories beside them."""
