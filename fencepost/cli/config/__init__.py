"""`fencepost config`."""
