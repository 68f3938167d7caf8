"""`fencepost acl`."""
