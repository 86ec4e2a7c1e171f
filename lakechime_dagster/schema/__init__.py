"""What events of JSON are made of: one grammar, the paths and kinds of their values, and a hash of these."""
