"""`lakechime schema`: the types of events, and what people decide of them."""
