"""The transaction coordinator, piece by piece."""
