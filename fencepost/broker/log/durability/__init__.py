"""What makes appended bytes durable: flushes, write-back, checkpoints, large writes."""
