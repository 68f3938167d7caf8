"""What keeps the stores small: merging, and compaction."""
