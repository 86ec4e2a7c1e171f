"""What a set of changes means: the rows of a table, its histories, its kept deletions, whatever order the changes came in."""
