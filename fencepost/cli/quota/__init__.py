"""`fencepost quota`."""
