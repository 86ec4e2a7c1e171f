"""The flights lake of the quickstart: its declarations, a replay of real data into it, and a check
by another engine.
"""
