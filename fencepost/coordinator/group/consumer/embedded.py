"""The consumer protocol that classic members embed in their Joins and Syncs: subscriptions and assignments, v0-3.

Later versions only append fields; an unknown version is read as the newest known one.
"""

from collections.abc import Mapping
from typing import NamedTuple

from fencepost.coordinator.group.consumer.member import Assignment
from fencepost.coordinator.group.consumer.reconcile import Reported
from fencepost.coordinator.metadata.image import MetadataImage
from fencepost.protocol.schema import Bytes, DecodeError, Int32, MessageValue, String, Value, since

PROTOCOL_TYPE = "consumer"
_NEWEST = 3


class TopicPartition(Value):
    topic: String = ""
    partitions: list[Int32] = []


class ConsumerProtocolSubscription(MessageValue, versions=(0, _NEWEST)):
    topics: list[String] = []
    user_data: Bytes | None = None
    owned_partitions: list[TopicPartition] = since(1)
    generation_id: Int32 = since(2, default=-1)
    rack_id: String | None = since(3, default=None)


class ConsumerProtocolAssignment(MessageValue, versions=(0, _NEWEST)):
    assigned_partitions: list[TopicPartition] = []
    user_data: Bytes | None = None


class Malformed(ValueError):
    """The bytes are not a subscription, or not an assignment."""


class Subscription(NamedTuple):
    """A classic member's subscription, with the partitions that it reports to own."""

    topics: tuple[str, ...]
    owned: tuple[tuple[str, tuple[int, ...]], ...]
    rack_id: str | None
    generation: int = -1
    """The generation in which it received its partitions; -1 if its version lacks the field."""


class NamedAssignment(NamedTuple):
    """A classic member's assignment, by topic name; `user_data` comes from a custom assignor."""

    partitions: Mapping[str, frozenset[int]]
    user_data: bytes


def version_of(data: bytes) -> int:
    """The version that the bytes begin with, at most the newest known one. Raises Malformed."""
    version = int.from_bytes(data[:2], "big", signed=True)
    if len(data) < 2 or version < 0:
        raise Malformed(f"{data[:2]!r} is no version of the consumer protocol")
    return min(version, _NEWEST)


def read_subscription(data: bytes) -> Subscription:
    """A member's subscription. Raises Malformed."""
    version = version_of(data)
    try:
        read, _ = ConsumerProtocolSubscription.decode_prefix(data, version, 2)
    except DecodeError as error:
        raise Malformed(str(error)) from error
    owned = tuple((topic.topic, tuple(topic.partitions)) for topic in read.owned_partitions)
    return Subscription(tuple(read.topics), owned, read.rack_id or None, read.generation_id)


def read_assignment(data: bytes) -> NamedAssignment:
    """A member's assignment; no bytes mean none. Raises Malformed."""
    if not data:
        return NamedAssignment({}, b"")
    version = version_of(data)
    try:
        read, _ = ConsumerProtocolAssignment.decode_prefix(data, version, 2)
    except DecodeError as error:
        raise Malformed(str(error)) from error
    partitions = {topic.topic: frozenset(topic.partitions) for topic in read.assigned_partitions}
    return NamedAssignment(partitions, bytes(read.user_data or b""))


def write_assignment(assignment: Assignment, image: MetadataImage, version: int) -> bytes:
    """An assignment for a classic member, in its version; deleted topics are left out."""
    topics = [
        TopicPartition(topic=image.topics_by_id[topic_id].name, partitions=sorted(partitions))
        for topic_id, partitions in assignment.items()
        if topic_id in image.topics_by_id
    ]
    value = ConsumerProtocolAssignment(assigned_partitions=topics)
    return version.to_bytes(2, "big") + value.encode(value, version)


def by_id(partitions: Mapping[str, frozenset[int]], image: MetadataImage) -> Assignment:
    names = image.topics_by_name
    return {names[name].topic_id: found for name, found in partitions.items() if name in names and found}


def reported_of(subscription: Subscription, image: MetadataImage) -> Reported:
    """The partitions that a classic member reports to own, by topic id."""
    names = image.topics_by_name
    return tuple((names[name].topic_id, partitions) for name, partitions in subscription.owned if name in names)
