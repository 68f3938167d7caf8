"""Our Spark data source and sink beside Spark's own Kafka connector: the same topics, one after the other."""
