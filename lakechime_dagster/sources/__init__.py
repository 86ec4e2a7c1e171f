"""Business databases as they are asked: what their tables are, and what they held at one position
of their log.
"""
