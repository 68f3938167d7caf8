"""`fencepost backup` and `restore`."""
