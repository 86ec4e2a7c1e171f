"""Change data capture: envelopes of changes, their one canonical row, their order, and the table
that they mean.
"""
