"""The HTTP server, its tokens, and its client."""
