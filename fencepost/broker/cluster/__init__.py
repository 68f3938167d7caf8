"""A broker without a disk of its own: PostgreSQL keeps the order of all logs, an object store keeps their bytes."""
