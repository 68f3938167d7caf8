"""The transactional producer and its requests."""
