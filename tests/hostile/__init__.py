"""Clients that send what no client should: `python -m tests.hostile`."""
