"""What the broker counts, and Prometheus' names for it."""
