"""Settings in, plain objects out: what assets and sensors share."""
