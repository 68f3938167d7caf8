"""`fencepost metadata-shell`."""
