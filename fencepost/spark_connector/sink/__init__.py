"""Spark's writers: encoding in tasks, committing on the driver."""
