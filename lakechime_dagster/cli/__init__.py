"""The command line `lakechime`, a module per noun."""
