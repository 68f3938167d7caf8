"""Settings under Kafka's names: of the broker, topics, groups, client metrics and loggers."""
