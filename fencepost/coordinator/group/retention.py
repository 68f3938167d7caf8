"""Which offsets and groups expire, and when (row G7; KIP-211)."""

import struct
from typing import assert_never

from fencepost.coordinator.group.offsets import OffsetStore
from fencepost.coordinator.group.records import CommittedOffset, GroupRecord, GroupRemoved, OffsetRemoved
from fencepost.coordinator.group.state import CompletingRebalance, Dead, Empty, Group, PreparingRebalance, Stable

CONSUMER = "consumer"
"""The protocol type of consumers; only their subscriptions have a format that the broker can read."""


def expired(group_id: str, group: Group, offsets: OffsetStore, retention_ms: int, now_ms: int) -> list[GroupRecord]:
    """The tombstones for one group: of its expired offsets, and of the group if it is empty and has no others.

    An offset stays while a transaction has a pending one for its partition, and so does its group (row T5).
    """
    subscribed = subscribed_topics(group)
    pending = offsets.pending(group_id)
    records: list[GroupRecord] = []
    kept = False
    for partition, value in offsets.committed(group_id):
        base_ms = _base_ms(group, value)
        in_use = subscribed is None or partition.topic in subscribed or partition in pending
        if in_use or base_ms is None or not _is_over(value, base_ms, retention_ms, now_ms):
            kept = True
        else:
            records.append(OffsetRemoved(group_id, partition))
    if not kept and isinstance(group, Empty) and not group.pending and not offsets.has_pending(group_id):
        records.append(GroupRemoved(group_id))
    return records


def _is_over(value: CommittedOffset, base_ms: int, retention_ms: int, now_ms: int) -> bool:
    if value.expire_timestamp_ms >= 0:
        return now_ms >= value.expire_timestamp_ms
    return now_ms - base_ms >= retention_ms


def _base_ms(group: Group, value: CommittedOffset) -> int | None:
    """When the retention of an offset began; None while the group keeps all its offsets.

    It begins at the commit for a simple group, and for topics that a stable group no longer subscribes to. For a group
    that had members, it begins when the group became empty.
    """
    match group:
        case Dead():
            return value.commit_timestamp_ms
        case Empty():
            if group.protocol_type is None or group.since_ms is None:
                return value.commit_timestamp_ms
            return group.since_ms
        case Stable():
            return value.commit_timestamp_ms if group.protocol_type == CONSUMER else None
        case PreparingRebalance() | CompletingRebalance():
            return None
        case _:
            assert_never(group)


def subscribed_topics(group: Group) -> frozenset[str] | None:
    """The topics that members of a stable group of consumers subscribe to; None if that is unknown."""
    match group:
        case Dead() | Empty():
            return frozenset()
        case PreparingRebalance() | CompletingRebalance():
            return None
        case Stable():
            if group.protocol_type != CONSUMER:
                return None
            topics: set[str] = set()
            for member in group.members.values():
                own = subscription_topics(member.metadata(group.protocol))
                if own is None:
                    return None
                topics.update(own)
            return frozenset(topics)
        case _:
            assert_never(group)


def subscription_topics(metadata: bytes) -> list[str] | None:
    """The topics of a ConsumerProtocolSubscription, which every version begins with; None if it is malformed."""
    try:
        version, count = struct.unpack_from(">hi", metadata)
        if version < 0 or count < 0:
            return None
        topics: list[str] = []
        at = 6
        for _ in range(min(count, len(metadata))):
            (size,) = struct.unpack_from(">h", metadata, at)
            at += 2
            if size < 0 or at + size > len(metadata):
                return None
            topics.append(metadata[at : at + size].decode())
            at += size
    except (struct.error, UnicodeDecodeError):
        return None
    return topics if len(topics) == count else None
