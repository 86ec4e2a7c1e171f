"""Notices: whom a change hits, drafts, and telling people."""
