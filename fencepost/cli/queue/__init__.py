"""`fencepost queue`."""
