"""`fencepost user`."""
