"""What several tests need: factories, servers, sessions."""
