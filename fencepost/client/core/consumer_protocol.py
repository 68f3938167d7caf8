"""The bytes that members of a classic group send each other: Kafka's ConsumerProtocol, versions 0 to 3.

Later versions only append, so bytes of an unknown version are read as the newest known one. The brokers look
into them only where a group of the consumer protocol has classic members (KIP-848).
"""

import struct
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from fencepost.client.errors import KafkaError
from fencepost.protocol.topics import TopicPartition

NEWEST = 3
UNKNOWN_GENERATION = -1
_SHORT, _INT = struct.Struct(">h"), struct.Struct(">i")
_OWNED_SINCE, _GENERATION_SINCE, _RACK_SINCE = 1, 2, 3


@dataclass(frozen=True, slots=True)
class Subscription:
    """The topics that a member wants, and the partitions that it owns.

    `owned` and `generation` (KIP-429, KIP-792) are the partitions that it still has, and since which generation; an
    eager member owns nothing when it joins. `user_data` belongs to the assignor.
    """

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = UNKNOWN_GENERATION
    rack_id: str | None = None


def encode_subscription(subscription: Subscription, version: int = NEWEST) -> bytes:
    """ConsumerProtocolSubscription with its version in front."""
    parts = [_SHORT.pack(version), _INT.pack(len(subscription.topics)), *map(_string, subscription.topics)]
    parts.append(_bytes(subscription.user_data))
    if version >= _OWNED_SINCE:
        parts.append(encode_partitions(subscription.owned))
    if version >= _GENERATION_SINCE:
        parts.append(_INT.pack(subscription.generation))
    if version >= _RACK_SINCE:
        parts.append(_SHORT.pack(-1) if subscription.rack_id is None else _string(subscription.rack_id))
    return b"".join(parts)


def decode_subscription(data: bytes) -> Subscription:
    """A member's subscription. Raises KafkaError for bytes that are not a subscription."""
    reader = Reader(data, "a member's subscription", "JoinGroup")
    version = reader.version()
    topics = tuple(reader.string() for _ in range(reader.count()))
    user_data = reader.blob()
    owned: tuple[TopicPartition, ...] = ()
    generation, rack_id = UNKNOWN_GENERATION, None
    if version >= _OWNED_SINCE:
        owned = tuple(reader.partitions())
    if version >= _GENERATION_SINCE:
        generation = reader.number()
    if version >= _RACK_SINCE:
        rack_id = reader.nullable_string()
    return Subscription(topics, user_data, owned, generation, rack_id)


def encode_assignment(partitions: Collection[TopicPartition], version: int = NEWEST) -> bytes:
    """ConsumerProtocolAssignment: the partitions that a member gets."""
    return _SHORT.pack(version) + encode_partitions(partitions) + _bytes(None)


def decode_assignment(data: bytes) -> list[TopicPartition]:
    """The partitions of an assignment; empty bytes mean no partitions. Raises KafkaError."""
    if not data:
        return []
    reader = Reader(data, "an assignment", "SyncGroup")
    reader.version()
    return reader.partitions()


def encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    """Partitions by topic, as in subscriptions, assignments and the sticky assignor's data."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    parts = [_INT.pack(len(topics))]
    for topic, numbers in topics.items():
        parts.append(_string(topic) + _INT.pack(len(numbers)) + b"".join(map(_INT.pack, numbers)))
    return b"".join(parts)


class Reader:
    """Reads values from the front of some bytes. Raises a KafkaError that names `what` for malformed bytes."""

    def __init__(self, data: bytes, what: str, api: str) -> None:
        self._data, self._what, self._api = bytes(data), what, api
        self._at = 0

    @property
    def at_end(self) -> bool:
        return self._at >= len(self._data)

    def version(self) -> int:
        """The leading version, at most NEWEST."""
        version = self._number(_SHORT)
        if version < 0:
            raise self._wrong(f"version {version}")
        return min(version, NEWEST)

    def number(self) -> int:
        """A number of 32 bits."""
        return self._number(_INT)

    def count(self) -> int:
        """The length of a list; there is at least a byte for each element."""
        count = self._number(_INT)
        if not 0 <= count <= len(self._data) - self._at:
            raise self._wrong(f"a list of {count}")
        return count

    def string(self) -> str:
        """A string that must not be null."""
        text = self.nullable_string()
        if text is None:
            raise self._wrong("no string")
        return text

    def nullable_string(self) -> str | None:
        size = self._number(_SHORT)
        if size == -1:
            return None
        try:
            return self._take(size).decode()
        except UnicodeDecodeError as wrong:
            raise self._wrong(str(wrong)) from wrong

    def blob(self) -> bytes | None:
        """Bytes behind a length of 32 bits, or None."""
        size = self._number(_INT)
        return None if size == -1 else self._take(size)

    def partitions(self) -> list[TopicPartition]:
        """What `encode_partitions` writes."""
        found: list[TopicPartition] = []
        for _ in range(self.count()):
            topic = self.string()
            found += [TopicPartition(topic, self.number()) for _ in range(self.count())]
        return found

    def _number(self, kind: struct.Struct) -> int:
        number: int = kind.unpack(self._take(kind.size))[0]
        return number

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise self._wrong(f"{size} bytes")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def _wrong(self, found: str) -> KafkaError:
        return KafkaError(f"{self._what} cannot be read: {found} at byte {self._at}", api=self._api)


def _string(text: str) -> bytes:
    data = text.encode()
    return _SHORT.pack(len(data)) + data


def _bytes(data: bytes | None) -> bytes:
    return _INT.pack(-1) if data is None else _INT.pack(len(data)) + data
