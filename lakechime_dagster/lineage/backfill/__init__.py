"""What is to be computed again for a change, and in which order lanes do it."""
