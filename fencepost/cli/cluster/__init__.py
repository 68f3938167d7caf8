"""`fencepost cluster`."""
