"""Changes that people are told of, in the store."""
