"""`lakechime notice`: telling people of a change."""
