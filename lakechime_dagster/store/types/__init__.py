"""The types of events, in the store: what is known of them, and what steps did for them."""
