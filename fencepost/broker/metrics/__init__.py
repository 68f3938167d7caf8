"""The broker's counters, and their Prometheus names."""
