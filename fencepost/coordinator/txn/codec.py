"""Records of `__transaction_state`, byte for byte as Kafka writes them, so that its tools can read them (row T14)."""

from collections import defaultdict
from typing import Any, assert_never

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
from fencepost.protocol.schema import Array, DecodeError, Int8, Int16, Int32, Int64, Message, Since, String, Struct
from fencepost.protocol.topics import TopicPartition

KEY_VERSION = 0
LAST_EPOCH_TAG = 1000
"""Ours alone: the epoch that the client held before (KIP-360).

Kafka keeps it in memory only, and fences a producer whose InitProducerId is retried across a restart. The tag is far
above Kafka's own (0 to 3); Kafka's readers pass over tags they do not know.
"""

TransactionLogKey = Message("TransactionLogKey", (0, 0), None, "transactional_id" / String)

PartitionsSchema = Struct("PartitionsSchema", "topic" / String, "partition_ids" / Array(Int32))

TransactionLogValue = Message(
    "TransactionLogValue",
    (0, 1),
    1,
    "producer_id" / Int64,
    "previous_producer_id" / Since(1, Int64, tag=0, default=NO_PRODUCER_ID),
    "next_producer_id" / Since(1, Int64, tag=1, default=NO_PRODUCER_ID),
    "producer_epoch" / Int16,
    "transaction_timeout_ms" / Int32,
    "transaction_status" / Int8,
    "transaction_partitions" / Since(0, Array(PartitionsSchema), nullable=0),
    "transaction_last_update_timestamp_ms" / Int64,
    "transaction_start_timestamp_ms" / Int64,
    "client_transaction_version" / Since(1, Int16, tag=2),
    "next_producer_epoch" / Since(1, Int16, tag=3, default=NO_EPOCH),
    "last_producer_epoch" / Since(1, Int16, tag=LAST_EPOCH_TAG, default=NO_EPOCH),
)


class UnreadableRecord(Exception):
    """A record of `__transaction_state` that this build can not read; the text says which and why."""


def encode(record: TxnRecord, server_version: int) -> KeyValue:
    """The key and value of `record`; a value of None (a tombstone) for an id that is forgotten.

    The value is v0 while the feature `transaction.version` is 0, as an older Kafka needs it, unless that would lose
    what must not be lost: a TV2 transaction, or the identity that is to follow.
    """
    key = TransactionLogKey.encode(TransactionLogKey(transactional_id=record.transactional_id), KEY_VERSION)
    key = KEY_VERSION.to_bytes(2, "big") + key
    state = record.state
    if isinstance(state, Dead):
        return key, None
    fields = _fields(state)
    needs_tags = state.client_version >= 2 or "next_producer_id" in fields
    version = 1 if server_version >= 1 or needs_tags else 0
    value = TransactionLogValue.encode(TransactionLogValue(**fields), version)
    return key, version.to_bytes(2, "big") + value


def _fields(state: Known) -> dict[str, Any]:
    """The value's fields under Kafka's names. Empty has null for its partitions, the others an array, perhaps empty."""
    producer = state.producer
    fields: dict[str, Any] = {
        "producer_id": producer.producer_id,
        "previous_producer_id": producer.previous_producer_id,
        "producer_epoch": producer.epoch,
        "last_producer_epoch": producer.last_epoch,
        "transaction_timeout_ms": state.timeout_ms,
        "transaction_status": state.status,
        "transaction_partitions": [],
        "transaction_last_update_timestamp_ms": state.updated_ms,
        "client_transaction_version": state.client_version,
    }
    match state:
        case Empty():
            fields |= {"transaction_partitions": None, "transaction_start_timestamp_ms": -1}
        case Ongoing() | PrepareCommit() | PrepareAbort():
            fields["transaction_partitions"] = _by_topic(state.partitions)
            fields["transaction_start_timestamp_ms"] = state.started_ms
            if state.next_producer_id != NO_PRODUCER_ID:
                fields |= {
                    "next_producer_id": state.next_producer_id,
                    "next_producer_epoch": state.next_producer_epoch,
                }
        case CompleteCommit() | CompleteAbort():
            fields["transaction_start_timestamp_ms"] = state.started_ms
        case _:
            assert_never(state)
    return fields


def _by_topic(partitions: frozenset[TopicPartition]) -> list[Any]:
    """Kafka's order is that of a hash map, so none; ours is sorted, so that equal states are equal bytes."""
    topics: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(partitions):
        topics[topic].append(partition)
    return [PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in topics.items()]


def decode(key: bytes | None, value: bytes | None) -> TxnRecord | None:
    """The record in `key` and `value`; None for a kind of key that is not ours to read (a later Kafka's, KIP-915).

    Raises UnreadableRecord: to guess at what a transaction was would be to lose it.
    """
    if key is None or len(key) < 2:
        raise UnreadableRecord(f"a record of __transaction_state has the key {key!r}")
    if int.from_bytes(key[:2], "big", signed=True) != KEY_VERSION:
        return None
    try:
        transactional_id: str = TransactionLogKey.decode(key, KEY_VERSION, 2).transactional_id
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


def _state(value: Any) -> TxnState:
    status: int = value.transaction_status
    phase = PHASES[status] if 0 <= status < len(PHASES) else None
    common: dict[str, Any] = {
        "producer": Producer(
            value.producer_id, value.producer_epoch, value.previous_producer_id, value.last_producer_epoch
        ),
        "timeout_ms": value.transaction_timeout_ms,
        "updated_ms": value.transaction_last_update_timestamp_ms,
        "client_version": value.client_transaction_version,
    }
    started: dict[str, Any] = {"started_ms": value.transaction_start_timestamp_ms}
    open_on: dict[str, Any] = {
        "partitions": frozenset(
            TopicPartition(entry.topic, partition)
            for entry in value.transaction_partitions or ()
            for partition in entry.partition_ids
        )
    }
    following: dict[str, Any] = {
        "next_producer_id": value.next_producer_id,
        "next_producer_epoch": value.next_producer_epoch,
    }
    if phase is Empty:
        return Empty(**common)
    if phase is Ongoing:
        return Ongoing(**common, **started, **open_on, **following)
    if phase is PrepareCommit:
        return PrepareCommit(**common, **started, **open_on, **following)
    if phase is PrepareAbort:
        return PrepareAbort(**common, **started, **open_on, **following)
    if phase is CompleteCommit:
        return CompleteCommit(**common, **started)
    if phase is CompleteAbort:
        return CompleteAbort(**common, **started)
    raise UnreadableRecord(f"a value of __transaction_state has the transaction status {status}")
