"""Lineage: what runs tell of it, what is asked of it, and what follows."""
