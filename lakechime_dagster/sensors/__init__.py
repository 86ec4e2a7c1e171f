"""Sensors: triggers that launch runs, and what keeps events complete."""
