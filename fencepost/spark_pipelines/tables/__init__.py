"""Tables of Delta Lake and Apache Iceberg: files written by Spark's tasks, and committed with their position."""
