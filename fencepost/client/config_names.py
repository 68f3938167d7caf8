"""Names of options in other Kafka clients: synonyms of this client's options, and options that it does not have."""

SYNONYMS = {
    "socket_timeout_ms": "request_timeout_ms",
    "topic_metadata_refresh_interval_ms": "metadata_max_age_ms",
    "message_max_bytes": "max_request_size",
    "queue_buffering_max_ms": "linger_ms",
    "compression_codec": "compression_type",
    "message_timeout_ms": "delivery_timeout_ms",
    "request_required_acks": "acks",
    "max_in_flight": "max_in_flight_requests_per_connection",
    "fetch_wait_max_ms": "fetch_max_wait_ms",
    "fetch_message_max_bytes": "max_partition_fetch_bytes",
}
"""librdkafka's names for what Kafka calls otherwise."""

KEYWORD_SYNONYMS = {
    **SYNONYMS,
    "sasl_mechanisms": "sasl_mechanism",
    "sasl_plain_username": "sasl_username",
    "sasl_plain_password": "sasl_password",
    "ssl_password": "ssl_key_password",
    "serializer": "value_serializer",
    "deserializer": "value_deserializer",
}
"""Keywords of other clients, and the names of the same options here."""

_KEYWORDS = {"group_id": "group", "isolation_level": "isolation", "compression_type": "compression"}


def keyword_of(name: str) -> str:
    """The keyword argument for Kafka's name of an option: shorter for some, and seconds instead of ms."""
    return _KEYWORDS.get(name, name.removesuffix("_ms"))


RESET_WORDS = {"smallest": "earliest", "beginning": "earliest", "largest": "latest", "end": "latest", "error": "none"}
"""librdkafka's words for auto.offset.reset."""

DEFAULT_PARTITIONER = "murmur2_random"
"""librdkafka's name for the default of `partitioner` here."""

REPLACED_BY = {
    "transactional_id": "the id is the first argument of Client.transactional_producer",
    "consumer_timeout_ms": "Consumer.read_to_end ends where the partitions end; the event loop's timeouts end any wait",
    "enable_partition_eof": "Consumer.read_to_end ends where the partitions end",
    "timeout": "transaction_timeout bounds a transaction; a call has the event loop's timeouts or sync.Client's",
    "retries": "retries end with delivery_timeout and default_api_timeout",
}
"""Options of other clients that are no options here, and what replaces them."""

_NAMES = """
    allow.auto.create.topics api.version.fallback.ms api.version.request api.version.request.timeout.ms
    auto.include.jmx.reporter background_event_cb batch.num.messages broker.address.family broker.address.ttl
    broker.version.fallback builtin.features client.software.name client.software.version closesocket_cb
    compression.level connect_cb consume.callback.max.messages consume_cb coordinator.query.interval.ms debug
    delivery.report.only.error dr_cb dr_msg_cb enable.auto.offset.store enable.gapless.guarantee enable.metrics.push
    enable.partition.eof enable.random.seed enable.sparse.connections enable_sasl_queue enabled_events error_cb
    exclude.internal.topics fetch.error.backoff.ms fetch.queue.backoff.ms group.protocol.type
    internal.termination.signal log.connection.close log.queue log.thread.name log_cb log_level logger
    message.copy.max.bytes message.send.max.retries metadata.request.timeout.ms metric.reporters
    metrics.num.samples metrics.recording.level metrics.sample.window.ms offset_commit_cb on_commit on_delivery opaque
    open_cb produce.offset.report queue.buffering.backpressure.threshold queue.buffering.max.kbytes
    queue.buffering.max.messages queued.max.messages.kbytes queued.min.messages queuing.strategy rebalance_cb
    receive.buffer.bytes reconnect.backoff.jitter.ms resolve_cb retries send.buffer.bytes
    socket.blocking.max.ms socket.keepalive.enable socket.max.fails socket.nagle.disable socket.receive.buffer.bytes
    socket.send.buffer.bytes socket_cb statistics.interval.ms stats_cb sticky.partitioning.linger.ms throttle_cb
    topic.metadata.propagation.max.ms topic.metadata.refresh.fast.cnt topic.metadata.refresh.fast.interval.ms
    topic.metadata.refresh.sparse
"""
IGNORED = frozenset(name.replace(".", "_") for name in _NAMES.split())
"""Options of librdkafka, confluent-kafka and Kafka's Java client that may be ignored: without them no record goes
elsewhere, gets lost or is duplicated, and no connection is less safe."""
