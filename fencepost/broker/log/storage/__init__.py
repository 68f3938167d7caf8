"""Files and formats: the store port, segments, indexes, checkpoints."""
