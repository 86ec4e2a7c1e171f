"""Tables that follow a database's: their messages brought into the lake, their changes merged, their rows compared."""
