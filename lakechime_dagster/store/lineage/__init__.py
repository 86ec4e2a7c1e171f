"""What runs and other programs told of lineage, in the store."""
