"""Kafka's messages, one file per API, numbered as on the wire."""
