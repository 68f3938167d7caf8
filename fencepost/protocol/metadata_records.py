"""Encodes and decodes the metadata log's records: KRaft frames (frame version, type, version, body)."""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from fencepost.protocol.metadata_entries import MetadataEntry, PartitionRun
from fencepost.protocol.metadata_record_types import MetadataRecord, PartitionRecord, RegisterBrokerRecord
from fencepost.protocol.metadata_schema import FORM_OF, FORMS, kept
from fencepost.protocol.schema import DecodeError
from fencepost.protocol.varints import Malformed, get_varint, put_varint

FRAME_VERSION = 1
_PARTITION_ID = 3
"""The position of PartitionRecord's first field, the partition id, in its frame: after three one-byte varints."""
_AFTER_PARTITION_ID = _PARTITION_ID + 4
_AFTER_TOPIC_ID = _AFTER_PARTITION_ID + 16
_PARTITION_HEAD = bytes((FRAME_VERSION, 3))
_PARTITION_VERSION_MAX = 2


class MetadataRecordError(ValueError):
    """The bytes in the metadata log are not a record that this build knows."""


_LATE_FIELDS = ("eligible_leader_replicas", "last_known_elr", "cordoned_log_dirs")
"""A record with a value in one of these fields is written one version higher than the usual one (KIP-966, KIP-1066)."""


def encode_metadata_record(record: MetadataRecord) -> bytes:
    """The value of a metadata log record: frame version 1, type and version as unsigned varints, then the body."""
    form = FORM_OF[type(record)]
    version = form.version
    if any(getattr(record, name, None) is not None for name in _LATE_FIELDS):
        version += 1
    elif isinstance(record, PartitionRecord) and not record.directories:
        version = 0  # directories came with version 1 (KIP-858)
    elif isinstance(record, RegisterBrokerRecord) and not record.log_dirs and not record.is_migrating_zk_broker:
        version = 1  # directories came with version 3: software of an older metadata.version reads it, too
    body: bytes = form.message.encode(record, version)
    return put_varint(FRAME_VERSION) + put_varint(form.number) + put_varint(version) + body


def decode_metadata_record(data: bytes | memoryview) -> MetadataRecord:
    """The record in `data`, to its last byte. Raises MetadataRecordError for any other frame, type, version or body."""
    frame, at = _varint(data, 0)
    if frame != FRAME_VERSION:
        raise MetadataRecordError(f"metadata frame version {frame} is not {FRAME_VERSION}")
    number, at = _varint(data, at)
    version, at = _varint(data, at)
    form = FORMS.get(number)
    if form is None:
        raise MetadataRecordError(f"metadata record type {number} is not known to this build")
    lowest, highest = form.message.versions
    if not lowest <= version <= highest:
        raise MetadataRecordError(f"{form.made.__name__} version {version} is not known to this build")
    try:
        record: MetadataRecord = kept(form.message.decode(data, version, at))
    except DecodeError as error:
        raise MetadataRecordError(str(error)) from error
    return record


def _varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    try:
        return get_varint(data, at)
    except (IndexError, Malformed) as error:
        raise MetadataRecordError("the head of a metadata record is cut off or too long") from error


def encode_metadata_records(entries: Iterable[MetadataEntry]) -> list[bytes]:
    """As `encode_metadata_record`, for many; partitions that differ only in their partition id are encoded once."""
    found: list[bytes] = []
    like: PartitionRecord | None = None
    head = tail = b""
    for entry in entries:
        if not isinstance(entry, PartitionRecord | PartitionRun):
            found.append(encode_metadata_record(entry))
            continue
        record, length = (entry.first, entry.length) if isinstance(entry, PartitionRun) else (entry, 1)
        if like is None or like[1:] != record[1:]:
            like, frame = record, encode_metadata_record(record)
            head, tail = frame[:_PARTITION_ID], frame[_AFTER_PARTITION_ID:]
        start = record.partition_id
        found += [head + number.to_bytes(4, "big", signed=True) + tail for number in range(start, start + length)]
    return found


def decode_metadata_records(values: Sequence[bytes]) -> Iterator[MetadataEntry]:
    """The records in `values`; partitions with consecutive ids that are otherwise equal are one run.

    Raises MetadataRecordError at the first bytes that are not a record, after it has yielded those before.
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
        yield first if place == start + 1 else PartitionRun(first, place - start)


@lru_cache(maxsize=1024)
def _partition_like(head: bytes, rest: bytes) -> PartitionRecord:
    """The partition of a frame, with zeros for partition id and topic id; brokers have few different ones."""
    record = decode_metadata_record(head + bytes(_AFTER_TOPIC_ID - _PARTITION_ID) + rest)
    assert isinstance(record, PartitionRecord)
    return record
