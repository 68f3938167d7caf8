"""`fencepost group`."""
