"""Request to answer, one file per API."""
