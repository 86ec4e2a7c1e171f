"""What other programs tell of their runs: documents of ours, and run events of OpenLineage."""
