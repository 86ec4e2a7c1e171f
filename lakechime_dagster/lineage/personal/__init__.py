"""Personal data: tags of columns, how they follow lineage, scans of samples, and access requests."""
