"""The bytes of `__consumer_offsets`: Kafka's own keys and values, so that either broker reads the other's log.

Keys: a version (int16), then for 0 and 1 (OffsetCommitKey) group, topic, partition, for 2 (GroupMetadataKey) the group;
the others are those of consumer groups (`consumer/codec.py`) and share groups (`share/codec.py`).
Values: a version, then its fields. The broker writes OffsetCommitValue v4 (v1 if the client set a retention) and
GroupMetadataValue v3, as Kafka 4.3 does; it reads every version. It skips unknown tagged fields.
"""

import struct
from functools import lru_cache
from typing import TypeAlias

from fencepost.coordinator.group.consumer import codec as consumer_codec
from fencepost.coordinator.group.consumer.records import CONSUMER_RECORDS
from fencepost.coordinator.group.records import (
    CommittedOffset,
    GroupRecord,
    GroupRemoved,
    GroupSaved,
    OffsetCommitted,
    OffsetPending,
    OffsetRemoved,
)
from fencepost.coordinator.group.share import codec as share_codec
from fencepost.coordinator.group.share.records import SHARE_RECORDS
from fencepost.coordinator.group.state import Member
from fencepost.protocol.topics import TopicPartition
from fencepost.protocol.varints import Malformed, get_varint

KeyValue: TypeAlias = tuple[bytes | None, bytes | None]

OFFSET_KEY_VERSIONS = (0, 1)
GROUP_KEY_VERSION = 2
_FLEXIBLE_SINCE = 4
TOPIC_ID_SIZE = 16
_NEWEST_VALUE = 4
_TOPIC_ID_TAG = 0
_TOPIC_ID_HEAD = bytes((1, _TOPIC_ID_TAG, 16))
"""One tagged field, its tag, its size."""
_int16, _int32, _int64 = (struct.Struct(fmt).pack for fmt in (">h", ">i", ">q"))


class CorruptRecord(Exception):
    """A record of `__consumer_offsets` cannot be read; the message says why."""


@lru_cache(maxsize=16384)
def _offset_key(group_id: str, partition: TopicPartition) -> bytes:
    """OffsetCommitKey v1; cached, because a consumer commits the same few partitions again and again."""
    return b"\0\1" + _string(group_id) + _string(partition.topic) + struct.pack(">i", partition.partition)


def _group_key(group_id: str) -> bytes:
    return b"\0\2" + _string(group_id)


def encode(record: GroupRecord) -> KeyValue:
    """The key and value of a record; a value of None is a tombstone."""
    if isinstance(record, CONSUMER_RECORDS):
        return consumer_codec.encode(record)
    if isinstance(record, SHARE_RECORDS):
        return share_codec.encode(record)
    if isinstance(record, OffsetPending):
        record = record.commit
    if isinstance(record, OffsetCommitted):
        return _offset_key(record.group_id, record.partition), _offset_value(record.value)
    if isinstance(record, OffsetRemoved):
        return _offset_key(record.group_id, record.partition), None
    if isinstance(record, GroupSaved):
        return _group_key(record.group_id), _group_value(record)
    return _group_key(record.group_id), None


def _offset_value(value: CommittedOffset) -> bytes:
    if value.expire_timestamp_ms >= 0:
        times = struct.pack(">qq", value.commit_timestamp_ms, value.expire_timestamp_ms)
        return struct.pack(">hq", 1, value.offset) + _string(value.metadata) + times
    head = struct.pack(">hqi", 4, value.offset, value.leader_epoch)
    tags = b"\0" if value.topic_id is None else _TOPIC_ID_HEAD + value.topic_id
    return head + _compact_string(value.metadata) + _int64(value.commit_timestamp_ms) + tags


def _group_value(record: GroupSaved) -> bytes:
    parts = [
        struct.pack(">h", 3),
        _string(record.protocol_type),
        struct.pack(">i", record.generation),
        _nullable_string(record.protocol),
        _nullable_string(record.leader),
        _int64(record.since_ms),
        struct.pack(">i", len(record.members)),
    ]
    for member in record.members:
        parts += [
            _string(member.member_id),
            _nullable_string(member.group_instance_id),
            _frequent_string(member.client_id),
            _frequent_string(member.client_host),
            struct.pack(">ii", member.rebalance_timeout_ms, member.session_timeout_ms),
            _bytes(member.metadata(record.protocol)),
            _bytes(member.assignment),
        ]
    return b"".join(parts)


def _string(text: str) -> bytes:
    data = text.encode()
    return _int16(len(data)) + data


_frequent_string = lru_cache(maxsize=1024)(_string)
"""For strings that the members of a group have in common."""


def _compact_string(text: str) -> bytes:
    data = text.encode()
    size = len(data) + 1
    head = bytearray()
    while size > 0x7F:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes((*head, size)) + data


def _nullable_string(text: str | None) -> bytes:
    return b"\xff\xff" if text is None else _string(text)


def _bytes(data: bytes) -> bytes:
    return _int32(len(data)) + data


def decode(key: bytes | None, value: bytes | None) -> GroupRecord | None:
    """The record behind a key and value; None for an unknown kind of key (newer group types).

    Raises CorruptRecord.
    """
    if key is None:
        raise CorruptRecord("a record without a key")
    try:
        reader = _Reader(key)
        version = reader.number(">h")
        if version in OFFSET_KEY_VERSIONS:
            group_id = reader.string()
            partition = TopicPartition(reader.string(), reader.number(">i"))
            if value is None:
                return OffsetRemoved(group_id, partition)
            return OffsetCommitted(group_id, partition, _read_offset(value))
        if version == GROUP_KEY_VERSION:
            group_id = reader.string()
            return GroupRemoved(group_id) if value is None else _read_group(group_id, value)
        if version in consumer_codec.KEY_VERSIONS:
            return consumer_codec.decode(key, value)
        if version in share_codec.KEY_VERSIONS:
            return share_codec.decode(key, value)
    except (struct.error, UnicodeDecodeError, ValueError) as error:
        raise CorruptRecord(f"key {key!r}, value {value!r}: {error}") from error
    return None


def _read_offset(value: bytes) -> CommittedOffset:
    reader = _Reader(value)
    version = reader.value_version()
    offset = reader.number(">q")
    leader_epoch = reader.number(">i") if version >= 3 else -1
    metadata = reader.string()
    commit_timestamp_ms = reader.number(">q")
    expire_timestamp_ms = reader.number(">q") if version == 1 else -1
    topic_id = reader.tags().get(_TOPIC_ID_TAG)
    if topic_id is not None and len(topic_id) != TOPIC_ID_SIZE:
        raise ValueError(f"a topic id of {len(topic_id)} bytes")
    topic_id = None if topic_id is None or not any(topic_id) else topic_id
    return CommittedOffset(offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms, topic_id)


def _read_group(group_id: str, value: bytes) -> GroupSaved:
    reader = _Reader(value)
    version = reader.value_version()
    protocol_type = reader.string()
    generation = reader.number(">i")
    protocol = reader.nullable_string()
    leader = reader.nullable_string()
    since_ms = reader.number(">q") if version >= 2 else -1
    members = tuple(_read_member(reader, version, protocol or "") for _ in range(reader.count()))
    reader.tags()
    return GroupSaved(group_id, protocol_type, generation, protocol, leader, since_ms, members)


def _read_member(reader: "_Reader", version: int, protocol: str) -> Member:
    member_id = reader.string()
    instance_id = reader.nullable_string() if version >= 3 else None
    client_id = reader.string()
    client_host = reader.string()
    rebalance_timeout_ms = reader.number(">i") if version >= 1 else -1
    session_timeout_ms = reader.number(">i")
    subscription = reader.data()
    assignment = reader.data()
    reader.tags()
    if rebalance_timeout_ms == -1:
        rebalance_timeout_ms = session_timeout_ms
    protocols = ((protocol, subscription),)
    return Member(
        member_id, instance_id, client_id, client_host, session_timeout_ms, rebalance_timeout_ms, protocols, assignment
    )


class _Reader:
    """Reads the fields of one key or value, in the compact forms once a flexible version is seen."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._flexible = False

    def value_version(self) -> int:
        """The version a value begins with; sets the forms of all that follows."""
        version = self.number(">h")
        if not 0 <= version <= _NEWEST_VALUE:
            raise ValueError(f"value version {version} is not known")
        self._flexible = version >= _FLEXIBLE_SINCE
        return version

    def number(self, form: str) -> int:
        """A big-endian number of `struct`'s form."""
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return int(value)

    def string(self) -> str:
        """A string that may not be null."""
        text = self.nullable_string()
        if text is None:
            raise ValueError("null where a string must be")
        return text

    def nullable_string(self) -> str | None:
        size = self._varint() - 1 if self._flexible else self.number(">h")
        return None if size < 0 else self._take(size).decode()

    def data(self) -> bytes:
        """A byte string; null reads as empty."""
        size = self._varint() - 1 if self._flexible else self.number(">i")
        return b"" if size < 0 else self._take(size)

    def count(self) -> int:
        """The length of an array; at most the number of bytes left, as every element takes some bytes."""
        count = self._varint() - 1 if self._flexible else self.number(">i")
        if not 0 <= count <= len(self._data) - self._at:
            raise ValueError(f"an array of {count} elements in {len(self._data) - self._at} bytes")
        return count

    def tags(self) -> dict[int, bytes]:
        """The tagged fields of a flexible struct, by tag."""
        if not self._flexible:
            return {}
        return {self._varint(): self._take(self._varint()) for _ in range(self._varint())}

    def _varint(self) -> int:
        try:
            value, self._at = get_varint(self._data, self._at)
        except (IndexError, Malformed) as error:
            raise ValueError("a varint that is cut off or too long") from error
        return value

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise ValueError(f"{size} bytes wanted at {self._at} of {len(self._data)}")
        data = self._data[self._at : end]
        self._at = end
        return data
