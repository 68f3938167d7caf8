"""Copies of a data directory that are taken while its broker runs, and their restoration (decision 0068)."""
