"""`fencepost topic`."""
