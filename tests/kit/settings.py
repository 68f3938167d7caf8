"""Settings of brokers that tests share."""

QUICK_GROUPS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "2000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "200",
}
"""Members are missed soon: Kafka's own default makes that 45 s where the broker decides (KIP-848)."""
OLD_RECORDS = {"log.retention.ms": "-1"}
"""Records of tests bear times of long ago: no check of retention may come between their writing and their reading."""
