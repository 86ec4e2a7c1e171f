"""What leads to what: statements as a network, and the questions that are asked of it."""
