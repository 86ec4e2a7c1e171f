"""Change notifications: what changes, whom it affects, and the message for each owner."""
