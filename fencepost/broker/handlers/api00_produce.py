"""Produce (0): append one batch per partition, verify its transaction, respond as `acks` asks.

v3-13 are served. v0-2 are advertised for old librdkafka (KAFKA-18659); the broker closes the connection, as Kafka does.
v5 returns the log start offset, v7 allows zstd, v8 returns per-record errors (KIP-467), v11 knows
TRANSACTION_ABORTABLE, v12 adds partitions to the transaction implicitly (KIP-890, T16), v13 names topics by id.
"""

from fencepost.broker.handlers.produce_append import (
    ATTRIBUTES_LOW_BYTE,
    TOPIC_ID_SINCE,
    TRANSACTIONAL,
    ZSTD_SINCE,
    write_all,
)
from fencepost.broker.handlers.produce_reply import Write
from fencepost.broker.handlers.repeated_produce import KnownRequest, RepeatedProduce
from fencepost.broker.network.context import RequestContext
from fencepost.broker.network.reply import Reply
from fencepost.broker.ports import Broker
from fencepost.broker.security.checks import is_allowed
from fencepost.coordinator.metadata.topic_names import INTERNAL_TOPICS
from fencepost.protocol.admin_enums import AclOperation, AclResourceType
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api00_produce import PartitionProduceData, ProduceRequest
from fencepost.protocol.topics import TopicPartition

_CODEC_MASK, _ZSTD = 0x07, 4
_OK, _WRITE, _TOPIC = ErrorCode.NONE, AclOperation.WRITE, AclResourceType.TOPIC
"""Globals: reading a member from its enum costs twenty times as much."""
ADMIN_CLIENT_ID = "__admin_client"
"""The one client id that Kafka lets write to internal topics (its tools use it)."""

repeated = RepeatedProduce
"""What `Route.repeated` is for Produce."""


def handle(node: Broker, request: ProduceRequest, context: RequestContext) -> Reply:
    """Append every batch, in order. With acks=all the response waits until the batches are durable.

    Returns a coroutine only if the coordinator must verify a transaction, a thread writes a large batch, or the
    producer is throttled.
    """
    known = context.repeated
    resolved = known.resolve(node, request, context) if isinstance(known, KnownRequest) else None
    return write_all(node, request, context, *(resolved or _resolve(node, request, context)))


def _resolve(
    node: Broker, request: ProduceRequest, context: RequestContext
) -> tuple[list[Write], list[Write], list[Write]]:
    """One write per partition, in the request's order; a write that cannot be appended has its error set.

    The second list holds the other writes with a transactional batch, the third those with a large batch. The batch's
    attributes decide whether it is transactional; the log validates the batch later.
    """
    writes: list[Write] = []
    transactional: list[Write] = []
    large: list[Write] = []
    large_bytes = node.large_writes.from_bytes
    for topic in request.topic_data:
        missing: ErrorCode | None = None
        name = topic.name
        if context.api_version >= TOPIC_ID_SINCE:
            image = node.metadata.image.topics_by_id.get(topic.topic_id)
            name = image.name if image is not None else ""
            missing = ErrorCode.UNKNOWN_TOPIC_ID if image is None else None
        if node.authorizer is not None and missing is None and not is_allowed(node, context, _WRITE, _TOPIC, name):
            refused = [_refused(name, part) for part in topic.partition_data]
            writes += refused
            transactional += [write for write in refused if _is_transactional(write)]
            continue
        for part in topic.partition_data:
            tp = tuple.__new__(TopicPartition, (name, part.index))
            log = node.partition(tp)
            batch = part.records if part.records is not None else b""
            write = Write(tp, log, batch, _OK if log is not None else missing or node.absence(tp))
            writes.append(write)
            if log is None:
                continue
            counters = write.counters = node.metrics.topics[name]
            counters.produce_requests += 1
            size_bytes = len(batch)
            attributes = batch[ATTRIBUTES_LOW_BYTE] if size_bytes > ATTRIBUTES_LOW_BYTE else 0
            if name in INTERNAL_TOPICS and context.client_id != ADMIN_CLIENT_ID:
                write.fail(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Clients cannot write to internal topic {name}")
            elif not size_bytes:
                write.fail(ErrorCode.INVALID_RECORD, f"No record batch was sent for partition {tp}")
            elif context.api_version < ZSTD_SINCE and attributes & _CODEC_MASK == _ZSTD:
                why = f"zstd needs Produce v{ZSTD_SINCE} or later, this was v{context.api_version}"
                write.fail(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, why)
            else:
                if attributes & TRANSACTIONAL:
                    transactional.append(write)
                if size_bytes >= large_bytes:
                    large.append(write)
    return writes, transactional, large


def _refused(name: str, part: PartitionProduceData) -> Write:
    """A write to a topic that the client may not write to: whether the topic exists stays hidden."""
    tp = TopicPartition(name, part.index)
    return Write(tp, None, b"" if part.records is None else part.records, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _is_transactional(write: Write) -> bool:
    batch = write.batch
    return len(batch) > ATTRIBUTES_LOW_BYTE and bool(batch[ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL)
