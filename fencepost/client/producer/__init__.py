"""The idempotent producer: it puts records into batches, sends these to brokers, and handles acknowledgements."""
