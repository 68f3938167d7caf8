"""Brokers of several cores."""
