"""What people are told of a change: its states, whom it concerns, and the text for each."""
