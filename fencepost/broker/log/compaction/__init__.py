"""Compaction: which logs and segments to compact, which records to keep, how the new segment replaces the old ones."""
