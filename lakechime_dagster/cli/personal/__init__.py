"""`lakechime personal`: personal data, and where it goes."""
