"""Settings under Kafka's names: of the broker, of topics, of groups and of what else has any."""
