"""`lakechime lineage`: where columns come from, who reads them, and what a change of the code does."""
