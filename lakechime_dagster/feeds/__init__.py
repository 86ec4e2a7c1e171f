"""Asks feeds, which hold messages from outside of the lake, up to where they can be read."""
