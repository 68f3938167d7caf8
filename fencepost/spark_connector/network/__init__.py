"""Blocking connections to brokers for Spark's Python workers."""
