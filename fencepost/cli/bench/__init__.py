"""`fencepost bench`."""
