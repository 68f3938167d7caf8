"""`fencepost log`."""
