"""Partition logs on files or in memory."""
