"""Bytes to values and back: the wire protocol, record batches and their rules. Pure; imports no other package."""
