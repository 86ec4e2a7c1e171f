"""What SQL says of columns that never runs here: read as text, with the columns of the tables that it names known."""
