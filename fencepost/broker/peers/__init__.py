"""Requests between brokers: how one reaches the others, and what it asks them."""
