"""`fencepost txn`."""
