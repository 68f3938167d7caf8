"""The records of the metadata log: KRaft frames (frame version, type, version, body) and their bodies as values."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from fencepost.protocol.primitives import unsigned_varint
from fencepost.protocol.schema import (
    Array,
    DecodeError,
    Field,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    Since,
    String,
    Uuid,
)

FRAME_VERSION = 1
_PARTITION_ID = 3
"""Where PartitionRecord's first field, the partition's number, stands in its frame: behind three one-byte varints."""
UNASSIGNED_DIRECTORY = bytes(16)
"""The directory of a replica that was not placed in one yet (KIP-858)."""


class MetadataRecordError(ValueError):
    """Bytes in the metadata log that are no record this build knows."""


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A topic came to be (2); `topic_id` is 16 bytes."""

    name: str
    topic_id: bytes


@dataclass(frozen=True, slots=True)
class PartitionRecord:
    """A partition came to be (3): its replicas, who leads, and the directory of each replica."""

    partition_id: int
    topic_id: bytes
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    leader_recovery_state: int = 0
    directories: tuple[bytes, ...] = ()
    eligible_leader_replicas: tuple[int, ...] | None = None
    last_known_elr: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class ConfigRecord:
    """A setting of a topic (resource type 2) or of brokers (4; an empty name means all); None takes it away (4)."""

    resource_type: int
    resource_name: str
    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class RemoveTopicRecord:
    """A topic went, with its partitions and settings (9)."""

    topic_id: bytes


@dataclass(frozen=True, slots=True)
class FeatureLevelRecord:
    """A feature was finalized at a level; 0 takes it away (12)."""

    name: str
    feature_level: int


@dataclass(frozen=True, slots=True)
class ProducerIdsRecord:
    """A block of producer ids was handed out (15); `next_producer_id` is the first one of the next block."""

    broker_id: int
    broker_epoch: int
    next_producer_id: int


@dataclass(frozen=True, slots=True)
class NoOpRecord:
    """Nothing (20)."""


@dataclass(frozen=True, slots=True)
class BeginTransactionRecord:
    """What follows counts only if the transaction ends (23, KIP-868)."""

    name: str | None = None


@dataclass(frozen=True, slots=True)
class EndTransactionRecord:
    """What came since the Begin counts from here on (24, KIP-868)."""


@dataclass(frozen=True, slots=True)
class AbortTransactionRecord:
    """What came since the Begin never counts (25, KIP-868)."""

    reason: str | None = None


MetadataRecord = (
    TopicRecord
    | PartitionRecord
    | ConfigRecord
    | RemoveTopicRecord
    | FeatureLevelRecord
    | ProducerIdsRecord
    | NoOpRecord
    | BeginTransactionRecord
    | EndTransactionRecord
    | AbortTransactionRecord
)


@dataclass(frozen=True, slots=True)
class _Form:
    """How one record type is written: its number, its wire form, and the version written."""

    api_key: int
    made: type[Any]
    message: Message
    version: int


def _form(api_key: int, made: type[Any], written: int, *fields: Any, versions: tuple[int, int] = (0, 0)) -> _Form:
    return _Form(api_key, made, Message(made.__name__, versions, 0, *fields), written)


_FORMS = (
    _form(2, TopicRecord, 0, "name" / String, "topic_id" / Uuid),
    _form(
        3,
        PartitionRecord,
        1,
        "partition_id" / Field(Int32, default=-1),
        "topic_id" / Uuid,
        "replicas" / Array(Int32),
        "isr" / Array(Int32),
        "removing_replicas" / Array(Int32),
        "adding_replicas" / Array(Int32),
        "leader" / Field(Int32, default=-1),
        "leader_recovery_state" / Field(Int8, tag=0, default=0),
        "leader_epoch" / Field(Int32, default=-1),
        "partition_epoch" / Field(Int32, default=-1),
        "directories" / Since(1, Array(Uuid)),
        "eligible_leader_replicas" / Since(2, Array(Int32), nullable=2, default=None, tag=1),
        "last_known_elr" / Since(2, Array(Int32), nullable=2, default=None, tag=2),
        versions=(0, 2),
    ),
    _form(
        4,
        ConfigRecord,
        0,
        "resource_type" / Int8,
        "resource_name" / String,
        "name" / String,
        "value" / Field(String, nullable=0),
    ),
    _form(9, RemoveTopicRecord, 0, "topic_id" / Uuid),
    _form(12, FeatureLevelRecord, 0, "name" / String, "feature_level" / Int16),
    _form(
        15,
        ProducerIdsRecord,
        0,
        "broker_id" / Int32,
        "broker_epoch" / Field(Int64, default=-1),
        "next_producer_id" / Int64,
    ),
    _form(20, NoOpRecord, 0),
    _form(23, BeginTransactionRecord, 0, "name" / Field(String, nullable=0, default=None, tag=0)),
    _form(24, EndTransactionRecord, 0),
    _form(25, AbortTransactionRecord, 0, "reason" / Field(String, nullable=0, default=None, tag=0)),
)
_BY_TYPE = {form.made: form for form in _FORMS}
_BY_KEY = {form.api_key: form for form in _FORMS}


def encode_metadata_record(record: MetadataRecord) -> bytes:
    """The value of a metadata log record: frame version 1, type and version as unsigned varints, then the body."""
    form = _BY_TYPE[type(record)]
    value = form.message(**{name: _to_wire(getattr(record, name)) for name in form.message.fields})
    head = unsigned_varint(FRAME_VERSION) + unsigned_varint(form.api_key) + unsigned_varint(form.version)
    return head + form.message.encode(value, form.version)


def decode_metadata_record(data: bytes | memoryview) -> MetadataRecord:
    """The record in `data`, to its last byte. Raises MetadataRecordError for any other frame, type, version or body."""
    frame, at = _varint(data, 0)
    if frame != FRAME_VERSION:
        raise MetadataRecordError(f"metadata frame version {frame} is not {FRAME_VERSION}")
    api_key, at = _varint(data, at)
    version, at = _varint(data, at)
    form = _BY_KEY.get(api_key)
    if form is None:
        raise MetadataRecordError(f"metadata record type {api_key} is not known to this build")
    lowest, highest = form.message.versions
    if not lowest <= version <= highest:
        raise MetadataRecordError(f"{form.made.__name__} version {version} is not known to this build")
    try:
        value = form.message.decode(data, version, at)
    except DecodeError as error:
        raise MetadataRecordError(str(error)) from error
    fields = {name: _from_wire(getattr(value, name)) for name in form.message.fields}
    record: MetadataRecord = form.made(**fields)
    return record


def _to_wire(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _from_wire(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if at >= len(data) or shift > 14:
            raise MetadataRecordError("the head of a metadata record is cut off or too long")
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
        shift += 7


def encode_metadata_records(records: Sequence[MetadataRecord]) -> list[bytes]:
    """As `encode_metadata_record`, for many; partitions that differ in their number only are encoded once."""
    found: list[bytes] = []
    like: PartitionRecord | None = None
    frame = b""
    for record in records:
        if not isinstance(record, PartitionRecord):
            found.append(encode_metadata_record(record))
            continue
        if like is None or replace(like, partition_id=record.partition_id) != record:
            like, frame = record, encode_metadata_record(record)
        found.append(
            frame[:_PARTITION_ID] + record.partition_id.to_bytes(4, "big", signed=True) + frame[_PARTITION_ID + 4 :]
        )
    return found
