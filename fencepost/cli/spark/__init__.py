"""`fencepost spark`."""
