"""Fetch: which partitions a request reads, what it reads of each, and the sessions of consumers (KIP-227)."""
