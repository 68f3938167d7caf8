"""Who of a group reads which partition: Kafka's range and round-robin rules, and the bytes members tell each other."""

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fencepost.client.errors import KafkaError
from fencepost.protocol.topics import TopicPartition

_SHORT, _INT = struct.Struct(">h"), struct.Struct(">i")
PROTOCOL_VERSION = 0
Assignment = dict[str, list[TopicPartition]]


class Member(NamedTuple):
    """One member as the leader sees it; static members sort by their instance id, so that restarts move nothing."""

    member_id: str
    instance_id: str | None
    topics: tuple[str, ...]

    @property
    def order(self) -> tuple[bool, str]:
        """Static members first, each kind by name."""
        return self.instance_id is None, self.instance_id or self.member_id


def assign_range(members: Sequence[Member], counts: Mapping[str, int]) -> Assignment:
    """Per topic, neighbouring partitions go to each member; the first members get one more where it does not divide."""
    assigned: Assignment = {member.member_id: [] for member in members}
    for topic in sorted(counts):
        readers = sorted((member for member in members if topic in member.topics), key=lambda member: member.order)
        start = 0
        for place, member in enumerate(readers):
            size = counts[topic] // len(readers) + (1 if place < counts[topic] % len(readers) else 0)
            assigned[member.member_id] += [TopicPartition(topic, p) for p in range(start, start + size)]
            start += size
    return assigned


def assign_roundrobin(members: Sequence[Member], counts: Mapping[str, int]) -> Assignment:
    """All partitions in a row are dealt one by one to the members who want their topic."""
    assigned: Assignment = {member.member_id: [] for member in members}
    circle = sorted(members, key=lambda member: member.order)
    turn = 0
    for topic in sorted(counts):
        if not any(topic in member.topics for member in circle):
            continue
        for partition in range(counts[topic]):
            while topic not in circle[turn % len(circle)].topics:
                turn += 1
            assigned[circle[turn % len(circle)].member_id].append(TopicPartition(topic, partition))
            turn += 1
    return assigned


ASSIGNORS = {"range": assign_range, "roundrobin": assign_roundrobin}


def encode_subscription(topics: Sequence[str]) -> bytes:
    """ConsumerProtocolSubscription v0: the topics that a member wants."""
    return _SHORT.pack(PROTOCOL_VERSION) + _INT.pack(len(topics)) + b"".join(map(_string, topics)) + _INT.pack(-1)


def decode_subscription(data: bytes) -> tuple[str, ...]:
    """The topics out of a subscription of any version; later versions only append. Raises KafkaError."""
    try:
        (count,) = _INT.unpack_from(data, 2)
        position, topics = 6, []
        for _ in range(count):
            topic, position = _read_string(data, position)
            topics.append(topic)
    except (struct.error, UnicodeDecodeError) as wrong:
        raise KafkaError(f"a member's subscription can not be read: {wrong}", api="JoinGroup") from wrong
    return tuple(topics)


def encode_assignment(partitions: Sequence[TopicPartition]) -> bytes:
    """ConsumerProtocolAssignment v0: the partitions that a member gets."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    parts = [_SHORT.pack(PROTOCOL_VERSION), _INT.pack(len(topics))]
    for topic, numbers in topics.items():
        parts.append(_string(topic) + _INT.pack(len(numbers)) + b"".join(map(_INT.pack, numbers)))
    return b"".join(parts) + _INT.pack(-1)


def decode_assignment(data: bytes) -> list[TopicPartition]:
    """The partitions out of an assignment of any version; no bytes mean none. Raises KafkaError."""
    if not data:
        return []
    partitions: list[TopicPartition] = []
    try:
        (count,) = _INT.unpack_from(data, 2)
        position = 6
        for _ in range(count):
            topic, position = _read_string(data, position)
            (size,) = _INT.unpack_from(data, position)
            position += 4
            for _ in range(size):
                partitions.append(TopicPartition(topic, _INT.unpack_from(data, position)[0]))
                position += 4
    except (struct.error, UnicodeDecodeError) as wrong:
        raise KafkaError(f"an assignment can not be read: {wrong}", api="SyncGroup") from wrong
    return partitions


def _string(text: str) -> bytes:
    data = text.encode()
    return _SHORT.pack(len(data)) + data


def _read_string(data: bytes, position: int) -> tuple[str, int]:
    (size,) = _SHORT.unpack_from(data, position)
    end = position + 2 + size
    if size < 0 or end > len(data):
        raise struct.error(f"a string of {size} bytes at byte {position}")
    return bytes(data[position + 2 : end]).decode(), end
