"""The bytes of the metadata log's records: KRaft frames (frame version, type, version, body), both ways."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from fencepost.protocol import metadata_record_types as types
from fencepost.protocol.schema import (
    Array,
    Bool,
    Bytes,
    DecodeError,
    Field,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    MessageValue,
    Since,
    String,
    Struct,
    StructType,
    Uint16,
    Uuid,
)
from fencepost.protocol.varints import Malformed, get_varint, put_varint

FRAME_VERSION = 1
_PARTITION_ID = 3
"""Where PartitionRecord's first field, the partition's number, stands in its frame: behind three one-byte varints."""
_AFTER_PARTITION_ID = _PARTITION_ID + 4
_AFTER_TOPIC_ID = _AFTER_PARTITION_ID + 16
_PARTITION_HEAD = bytes((FRAME_VERSION, 3))
_PARTITION_VERSION_MAX = 2


class MetadataRecordError(ValueError):
    """Bytes in the metadata log that are no record this build knows."""


@dataclass(frozen=True, slots=True)
class _Form:
    """How one record type is written: its number, its wire form, and the version written."""

    api_key: int
    made: type[Any]
    message: type[MessageValue]
    version: int


def _form(api_key: int, made: type[Any], written: int, *fields: Any, versions: tuple[int, int] = (0, 0)) -> _Form:
    return _Form(api_key, made, Message(made.__name__, versions, 0, *fields), written)


_ENDPOINT = Struct("BrokerEndpoint", "name" / String, "host" / String, "port" / Uint16, "security_protocol" / Int16)
_FEATURE = Struct("BrokerFeature", "name" / String, "min_supported_version" / Int16, "max_supported_version" / Int16)
_ENTITY = Struct("QuotaEntity", "entity_type" / String, "entity_name" / Field(String, nullable=0))
_STRUCTS: dict[type[Any], StructType] = {
    types.BrokerEndpoint: _ENDPOINT,
    types.BrokerFeature: _FEATURE,
    types.QuotaEntity: _ENTITY,
}
_PARTS: dict[str, type[Any]] = {struct.__name__: made for made, struct in _STRUCTS.items()}


def _changed(tag: int, kind: Any, since: int = 0) -> Field:
    """A list in a tagged field: null where it did not change, or nobody said."""
    return Field(Array(kind), since, nullable=since, default=None, tag=tag)


_FORMS = (
    _form(
        0,
        types.RegisterBrokerRecord,
        3,
        "broker_id" / Int32,
        "is_migrating_zk_broker" / Since(2, Bool),
        "incarnation_id" / Uuid,
        "broker_epoch" / Int64,
        "end_points" / Array(_ENDPOINT),
        "features" / Array(_FEATURE),
        "rack" / Field(String, nullable=0),
        "fenced" / Field(Bool, default=True),
        "in_controlled_shutdown" / Since(1, Bool),
        "log_dirs" / Field(Array(Uuid), 3, tag=0),
        "cordoned_log_dirs" / _changed(1, Uuid, 4),
        versions=(0, 4),
    ),
    _form(1, types.UnregisterBrokerRecord, 0, "broker_id" / Int32, "broker_epoch" / Int64),
    _form(2, types.TopicRecord, 0, "name" / String, "topic_id" / Uuid),
    _form(
        3,
        types.PartitionRecord,
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
        types.ConfigRecord,
        0,
        "resource_type" / Int8,
        "resource_name" / String,
        "name" / String,
        "value" / Field(String, nullable=0),
    ),
    _form(
        5,
        types.PartitionChangeRecord,
        1,
        "partition_id" / Field(Int32, default=-1),
        "topic_id" / Uuid,
        "isr" / _changed(0, Int32),
        "leader" / Field(Int32, default=-2, tag=1),
        "replicas" / _changed(2, Int32),
        "removing_replicas" / _changed(3, Int32),
        "adding_replicas" / _changed(4, Int32),
        "leader_recovery_state" / Field(Int8, default=-1, tag=5),
        "eligible_leader_replicas" / _changed(6, Int32, 2),
        "last_known_elr" / _changed(7, Int32, 2),
        "directories" / _changed(8, Uuid, 1),
        versions=(0, 2),
    ),
    _form(7, types.FenceBrokerRecord, 0, "id" / Int32, "epoch" / Int64),
    _form(8, types.UnfenceBrokerRecord, 0, "id" / Int32, "epoch" / Int64),
    _form(9, types.RemoveTopicRecord, 0, "topic_id" / Uuid),
    _form(
        11,
        types.UserScramCredentialRecord,
        0,
        "name" / String,
        "mechanism" / Int8,
        "salt" / Bytes,
        "stored_key" / Bytes,
        "server_key" / Bytes,
        "iterations" / Int32,
    ),
    _form(12, types.FeatureLevelRecord, 0, "name" / String, "feature_level" / Int16),
    _form(
        14, types.ClientQuotaRecord, 0, "entity" / Array(_ENTITY), "key" / String, "value" / Float64, "remove" / Bool
    ),
    _form(
        15,
        types.ProducerIdsRecord,
        0,
        "broker_id" / Int32,
        "broker_epoch" / Field(Int64, default=-1),
        "next_producer_id" / Int64,
    ),
    _form(
        17,
        types.BrokerRegistrationChangeRecord,
        2,
        "broker_id" / Int32,
        "broker_epoch" / Int64,
        "fenced" / Field(Int8, tag=0),
        "in_controlled_shutdown" / Field(Int8, 1, tag=1),
        "log_dirs" / Field(Array(Uuid), 2, tag=2),
        "cordoned_log_dirs" / _changed(3, Uuid, 3),
        versions=(0, 3),
    ),
    _form(
        18,
        types.AccessControlEntryRecord,
        0,
        "id" / Uuid,
        "resource_type" / Int8,
        "resource_name" / String,
        "pattern_type" / Int8,
        "principal" / String,
        "host" / String,
        "operation" / Int8,
        "permission_type" / Int8,
    ),
    _form(19, types.RemoveAccessControlEntryRecord, 0, "id" / Uuid),
    _form(20, types.NoOpRecord, 0),
    _form(22, types.RemoveUserScramCredentialRecord, 0, "name" / String, "mechanism" / Int8),
    _form(23, types.BeginTransactionRecord, 0, "name" / Field(String, nullable=0, default=None, tag=0)),
    _form(24, types.EndTransactionRecord, 0),
    _form(28, types.ClearElrRecord, 0, "topic_name" / String),
    _form(
        27,
        types.RegisterControllerRecord,
        0,
        "controller_id" / Int32,
        "incarnation_id" / Uuid,
        "zk_migration_ready" / Bool,
        "end_points" / Array(_ENDPOINT),
        "features" / Array(_FEATURE),
    ),
    _form(25, types.AbortTransactionRecord, 0, "reason" / Field(String, nullable=0, default=None, tag=0)),
)
_BY_TYPE = {form.made: form for form in _FORMS}
_BY_KEY = {form.api_key: form for form in _FORMS}


_LATE_FIELDS = ("eligible_leader_replicas", "last_known_elr", "cordoned_log_dirs")
"""Only what has something in one of these is written in the version after the one that we write (KIP-966, KIP-1066)."""


def encode_metadata_record(record: types.MetadataRecord) -> bytes:
    """The value of a metadata log record: frame version 1, type and version as unsigned varints, then the body."""
    form = _BY_TYPE[type(record)]
    version = form.version
    if any(getattr(record, name, None) is not None for name in _LATE_FIELDS):
        version += 1
    elif isinstance(record, types.PartitionRecord) and not record.directories:
        version = 0  # directories came with version 1 (KIP-858)
    elif isinstance(record, types.RegisterBrokerRecord) and not record.log_dirs and not record.is_migrating_zk_broker:
        version = 1  # directories came with version 3: software of an older metadata.version reads it, too
    value = form.message(**{name: _to_wire(getattr(record, name)) for name in form.message.fields})
    head = put_varint(FRAME_VERSION) + put_varint(form.api_key) + put_varint(version)
    return head + form.message.encode(value, version)


def decode_metadata_record(data: bytes | memoryview) -> types.MetadataRecord:
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
    record: types.MetadataRecord = form.made(**fields)
    return record


def _to_wire(value: Any) -> Any:
    return [_to_struct(part) for part in value] if isinstance(value, tuple) else value


def _to_struct(part: Any) -> Any:
    struct = _STRUCTS.get(type(part))
    return part if struct is None else struct(**{name: getattr(part, name) for name in struct.fields})


def _from_wire(value: Any) -> Any:
    return tuple(_from_struct(part) for part in value) if isinstance(value, list) else value


def _from_struct(part: Any) -> Any:
    made = _PARTS.get(type(part).__name__)
    return part if made is None else made(**{name: getattr(part, name) for name in part._fields})


def _varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    try:
        return get_varint(data, at)
    except (IndexError, Malformed) as error:
        raise MetadataRecordError("the head of a metadata record is cut off or too long") from error


def encode_metadata_records(entries: Iterable[types.MetadataEntry]) -> list[bytes]:
    """As `encode_metadata_record`, for many; partitions that differ in their number only are encoded once."""
    found: list[bytes] = []
    like: types.PartitionRecord | None = None
    head = tail = b""
    for entry in entries:
        if not isinstance(entry, types.PartitionRecord | types.PartitionRun):
            found.append(encode_metadata_record(entry))
            continue
        record, length = (entry.first, entry.length) if isinstance(entry, types.PartitionRun) else (entry, 1)
        if like is None or like[1:] != record[1:]:
            like, frame = record, encode_metadata_record(record)
            head, tail = frame[:_PARTITION_ID], frame[_AFTER_PARTITION_ID:]
        start = record.partition_id
        found += [head + number.to_bytes(4, "big", signed=True) + tail for number in range(start, start + length)]
    return found


def decode_metadata_records(values: Sequence[bytes]) -> Iterator[types.MetadataEntry]:
    """The records in `values`; partitions numbered in a row, and else alike, as one run.

    Raises MetadataRecordError once it comes to bytes that are no record; what came before it was yielded.
    """
    place, end = 0, len(values)
    while place < end:
        frame = values[place]
        if frame[:2] != _PARTITION_HEAD or len(frame) < _AFTER_TOPIC_ID or frame[2] > _PARTITION_VERSION_MAX:
            yield decode_metadata_record(frame)
            place += 1
            continue
        number = int.from_bytes(frame[_PARTITION_ID:_AFTER_PARTITION_ID], "big", signed=True)
        like = _partition_like(frame[:_PARTITION_ID], frame[_AFTER_TOPIC_ID:])
        first = like._replace(partition_id=number, topic_id=bytes(frame[_AFTER_PARTITION_ID:_AFTER_TOPIC_ID]))
        head, tail, start = frame[:_PARTITION_ID], frame[_AFTER_PARTITION_ID:], place
        place += 1
        most = min(end, start + 0x7FFF_FFFF - number + 1)
        while place < most and values[place] == head + (number + place - start).to_bytes(4, "big", signed=True) + tail:
            place += 1
        yield first if place == start + 1 else types.PartitionRun(first, place - start)


@lru_cache(maxsize=1024)
def _partition_like(head: bytes, rest: bytes) -> types.PartitionRecord:
    """The partition of a frame that has zeros for its number and topic; brokers have few different ones."""
    record = decode_metadata_record(head + bytes(_AFTER_TOPIC_ID - _PARTITION_ID) + rest)
    assert isinstance(record, types.PartitionRecord)
    return record
