"""`fencepost profile`."""
