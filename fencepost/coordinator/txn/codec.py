"""Records of `__transaction_state`, byte for byte as Kafka writes them, so that its tools can read them (row T14)."""

from typing import assert_never

from fencepost.coordinator.ports import KeyValue
from fencepost.coordinator.txn.state import (
    DEAD,
    NO_EPOCH,
    NO_PRODUCER_ID,
    PHASES,
    CompleteAbort,
    CompleteCommit,
    Dead,
    Empty,
    Known,
    Ongoing,
    PrepareAbort,
    PrepareCommit,
    Producer,
    TxnRecord,
    TxnState,
)
from fencepost.protocol.schema import DecodeError, Int8, Int16, Int32, Int64, MessageValue, String, Value, since
from fencepost.protocol.topics import TopicPartition

KEY_VERSION = 0
LAST_EPOCH_TAG = 1000
"""A tag of fencepost only: the epoch that the client held before (KIP-360).

Kafka keeps it in memory only, and fences a producer whose InitProducerId is retried across a restart. The tag is far
above Kafka's own (0 to 3); Kafka's readers skip unknown tags.
"""


class TransactionLogKey(MessageValue, versions=(0, 0)):
    transactional_id: String = ""


class PartitionsSchema(Value):
    topic: String = ""
    partition_ids: list[Int32] = []


class TransactionLogValue(MessageValue, versions=(0, 1), flexible=1):
    producer_id: Int64 = 0
    previous_producer_id: Int64 = since(1, default=NO_PRODUCER_ID, tag=0)
    next_producer_id: Int64 = since(1, default=NO_PRODUCER_ID, tag=1)
    producer_epoch: Int16 = 0
    transaction_timeout_ms: Int32 = 0
    transaction_status: Int8 = 0
    transaction_partitions: list[PartitionsSchema] | None = []
    transaction_last_update_timestamp_ms: Int64 = 0
    transaction_start_timestamp_ms: Int64 = 0
    client_transaction_version: Int16 = since(1, tag=2)
    next_producer_epoch: Int16 = since(1, default=NO_EPOCH, tag=3)
    last_producer_epoch: Int16 = since(1, default=NO_EPOCH, tag=LAST_EPOCH_TAG)


_VERSIONS = (b"\0\0", b"\0\1")
"""The prefix of a key or a value: its version."""


class UnreadableRecord(Exception):
    """This build cannot read a record of `__transaction_state`; the text names the record and the reason."""


def encode(record: TxnRecord, server_version: int) -> KeyValue:
    """The key and value of `record`; a value of None (a tombstone) for an expired id.

    The value is v0 while the feature `transaction.version` is 0, as an older Kafka needs it. It is v1 nevertheless if
    v0 would lose that the transaction is a TV2 one, or the identity that follows it.
    """
    key = TransactionLogKey(transactional_id=record.transactional_id)
    encoded_key = _VERSIONS[KEY_VERSION] + TransactionLogKey.encode(key, KEY_VERSION)
    state = record.state
    if isinstance(state, Dead):
        return encoded_key, None
    value = _value(state)
    needs_tags = state.client_version >= 2 or value.next_producer_id != NO_PRODUCER_ID
    version = 1 if server_version >= 1 or needs_tags else 0
    return encoded_key, _VERSIONS[version] + TransactionLogValue.encode(value, version)


def _value(state: Known) -> TransactionLogValue:
    """The fields of a value. The partitions of Empty are null, those of the others an array, perhaps empty."""
    partitions: list[PartitionsSchema] | None = []
    started_ms, following = -1, (NO_PRODUCER_ID, NO_EPOCH)
    match state:
        case Empty():
            partitions = None
        case Ongoing() | PrepareCommit() | PrepareAbort():
            partitions, started_ms = _by_topic(state.partitions), state.started_ms
            following = state.next_producer_id, state.next_producer_epoch
        case CompleteCommit() | CompleteAbort():
            started_ms = state.started_ms
        case _:
            assert_never(state)
    producer = state.producer
    return TransactionLogValue(
        producer_id=producer.producer_id,
        previous_producer_id=producer.previous_producer_id,
        next_producer_id=following[0],
        producer_epoch=producer.epoch,
        transaction_timeout_ms=state.timeout_ms,
        transaction_status=state.status,
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=state.updated_ms,
        transaction_start_timestamp_ms=started_ms,
        client_transaction_version=state.client_version,
        next_producer_epoch=following[1],
        last_producer_epoch=producer.last_epoch,
    )


def _by_topic(partitions: frozenset[TopicPartition]) -> list[PartitionsSchema]:
    """The partitions by topic, sorted so that equal states have equal bytes. Kafka's order is that of a hash map."""
    topics: dict[str, PartitionsSchema] = {}
    for topic, partition in sorted(partitions):
        if topic not in topics:
            topics[topic] = PartitionsSchema(topic=topic)
        topics[topic].partition_ids.append(partition)
    return list(topics.values())


def decode(key: bytes | None, value: bytes | None) -> TxnRecord | None:
    """The record in `key` and `value`; None for an unknown kind of key (a later Kafka's, KIP-915).

    Raises UnreadableRecord: a guess at a transaction's state could lose the transaction.
    """
    if key is None or len(key) < 2:
        raise UnreadableRecord(f"a record of __transaction_state has the key {key!r}")
    if int.from_bytes(key[:2], "big", signed=True) != KEY_VERSION:
        return None
    try:
        transactional_id = TransactionLogKey.decode(key, KEY_VERSION, 2).transactional_id
        if value is None:
            return TxnRecord(transactional_id, DEAD)
        version = int.from_bytes(value[:2], "big", signed=True)
        if len(value) < 2 or version not in (0, 1):
            raise UnreadableRecord(
                f"transactional id {transactional_id!r}: its record has the unknown version {version}"
            )
        return TxnRecord(transactional_id, _state(TransactionLogValue.decode(value, version, 2)))
    except DecodeError as error:
        raise UnreadableRecord(f"key {key!r} of __transaction_state: {error}") from error


def _state(value: TransactionLogValue) -> TxnState:
    status = value.transaction_status
    phase = PHASES[status] if 0 <= status < len(PHASES) else Dead
    producer = Producer(value.producer_id, value.producer_epoch, value.previous_producer_id, value.last_producer_epoch)
    timeout_ms, client_version = value.transaction_timeout_ms, value.client_transaction_version
    started_ms, updated_ms = value.transaction_start_timestamp_ms, value.transaction_last_update_timestamp_ms
    if issubclass(phase, Empty):
        return Empty(producer, timeout_ms, updated_ms, client_version)
    if issubclass(phase, CompleteCommit | CompleteAbort):
        return phase(producer, timeout_ms, started_ms, updated_ms, client_version)
    if issubclass(phase, Ongoing | PrepareCommit | PrepareAbort):
        partitions = frozenset(
            TopicPartition(entry.topic, partition)
            for entry in value.transaction_partitions or ()
            for partition in entry.partition_ids
        )
        following = value.next_producer_id, value.next_producer_epoch
        return phase(producer, timeout_ms, partitions, started_ms, updated_ms, client_version, *following)
    raise UnreadableRecord(f"a value of __transaction_state has the transaction status {status}")
