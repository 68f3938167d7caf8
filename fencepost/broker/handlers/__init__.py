"""Request handlers, one file for each API."""
