"""Tables that follow a database: what is there of them, and what is done about them beside their runs."""
