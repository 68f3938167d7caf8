"""Version 1 of a `__transaction_state` value packed by hand: every transaction writes three of them (row T14)."""

import struct
from functools import lru_cache

from fencepost.coordinator.txn.state import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    Empty,
    Known,
    Ongoing,
    PrepareAbort,
    PrepareCommit,
)
from fencepost.protocol.codec_words import put_varint
from fencepost.protocol.topics import TopicPartition

_KEY = struct.Struct(">hh")
_HEAD = struct.Struct(">hqhib")
"""Version, producer id, epoch, timeout, status."""
_TIMES = struct.Struct(">qq")
_INT64_TAG = struct.Struct(">bbq")
_INT16_TAG = struct.Struct(">bbh")
_VERSION = 1
_LAST_EPOCH_TAG_NUMBER = put_varint(1000)
_NULL, _NOTHING, _END = b"\0", b"\1", b"\0"
_CACHED_MAX = 64
"""Transactions of so many partitions at most are remembered: the same ones come again and again."""


def key(transactional_id: str) -> bytes:
    """The record's key, version 0."""
    name = transactional_id.encode()
    return _KEY.pack(0, len(name)) + name


def value(state: Known) -> bytes:
    """The record's value, version 1: fixed fields, the partitions by topic, and tags for what is unusual."""
    producer = state.producer
    head = _HEAD.pack(_VERSION, producer.producer_id, producer.epoch, state.timeout_ms, state.status)
    next_producer_id, next_producer_epoch = NO_PRODUCER_ID, NO_EPOCH
    if isinstance(state, Ongoing | PrepareCommit | PrepareAbort):
        partitions = (
            _remembered(state.partitions) if len(state.partitions) <= _CACHED_MAX else _by_topic(state.partitions)
        )
        times = _TIMES.pack(state.updated_ms, state.started_ms)
        if state.next_producer_id != NO_PRODUCER_ID:
            next_producer_id, next_producer_epoch = state.next_producer_id, state.next_producer_epoch
    elif isinstance(state, Empty):
        partitions, times = _NULL, _TIMES.pack(state.updated_ms, -1)
    else:
        partitions, times = _NOTHING, _TIMES.pack(state.updated_ms, state.started_ms)
    tags = []
    if producer.previous_producer_id != NO_PRODUCER_ID:
        tags.append(_INT64_TAG.pack(0, 8, producer.previous_producer_id))
    if next_producer_id != NO_PRODUCER_ID:
        tags.append(_INT64_TAG.pack(1, 8, next_producer_id))
    if state.client_version:
        tags.append(_INT16_TAG.pack(2, 2, state.client_version))
    if next_producer_epoch != NO_EPOCH:
        tags.append(_INT16_TAG.pack(3, 2, next_producer_epoch))
    if producer.last_epoch != NO_EPOCH:
        tags.append(_LAST_EPOCH_TAG_NUMBER + b"\2" + producer.last_epoch.to_bytes(2, "big", signed=True))
    return b"".join((head, partitions, times, put_varint(len(tags)), *tags))


def _by_topic(partitions: frozenset[TopicPartition]) -> bytes:
    """An array of topics, each with its partitions, sorted."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    parts = [put_varint(len(topics) + 1)]
    for topic, numbers in topics.items():
        name = topic.encode()
        parts += put_varint(len(name) + 1), name, put_varint(len(numbers) + 1)
        parts += struct.pack(f">{len(numbers)}i", *numbers), _END
    return b"".join(parts)


_remembered = lru_cache(maxsize=1024)(_by_topic)
