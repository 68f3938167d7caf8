"""The idempotent producer: records into batches, batches to brokers, acknowledgements back."""
