"""Compaction: which logs and how much of them, what stays of a batch, and how the result takes its place."""
