"""Declared tables as Dagster assets."""
