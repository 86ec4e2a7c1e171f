"""The HTTP server: lineage page, ingestion of lineage, metrics."""
