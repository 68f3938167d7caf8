"""`fencepost completion`: the scripts of shells, and the names that they complete from a broker."""
