"""Business databases as they are asked: what their tables are, and what they held at one place of
their log.
"""
