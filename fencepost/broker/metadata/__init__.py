"""The cluster's metadata: its log, its snapshots and its encoded responses."""
