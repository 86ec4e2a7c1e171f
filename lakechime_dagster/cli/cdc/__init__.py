"""`lakechime cdc`: tables that follow a database."""
