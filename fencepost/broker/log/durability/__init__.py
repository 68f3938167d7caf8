"""Makes appended bytes durable: flushes, writeback, checkpoints, large writes."""
