"""An image of the metadata as a file: Kafka's snapshot format (KIP-630), written from a value and read back whole.

A control batch with a header, data batches with the image's records, a control batch with a footer: a file without its
footer is not a snapshot. Offsets in the file count from 0 and have no meaning; the file's name has the end offset in
the log. A snapshot contains the state, not its history: it never has a transaction record (KIP-868).
"""

import re
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fencepost.coordinator.metadata.delta import MetadataCorrupt
from fencepost.coordinator.metadata.features import DIRECTORIES_SINCE, ELIGIBLE_REPLICAS_SINCE, SCRAM_SINCE
from fencepost.coordinator.metadata.image import FIRST_PRODUCER_ID, METADATA_VERSION, MetadataImage, TopicImage
from fencepost.coordinator.metadata.transactions import image_of_snapshot
from fencepost.protocol.batch_header import CONTROL_BIT, BatchHeader, CorruptBatch, check_crc, iter_headers
from fencepost.protocol.control_records import ControlType, control_type
from fencepost.protocol.metadata_entries import MetadataEntry, PartitionRun, record_count
from fencepost.protocol.metadata_record_types import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntity,
    TopicRecord,
    UserScramCredentialRecord,
)
from fencepost.protocol.metadata_records import MetadataRecordError, decode_metadata_records, encode_metadata_records
from fencepost.protocol.record_batch import build_batch
from fencepost.protocol.records import decode_records

SNAPSHOT_FILE = re.compile(r"(?P<offset>[0-9]{20})-(?P<epoch>[0-9]{10})\.checkpoint")
BATCH_RECORDS = 2_000
_KEY = struct.Struct(">hh")
_HEADER = struct.Struct(">hqb")
_FOOTER = struct.Struct(">hb")


class SnapshotId(NamedTuple):
    """The end of a snapshot: it contains everything below `offset`, whose last record is of leader epoch `epoch`."""

    offset: int
    epoch: int = 0

    @property
    def file_name(self) -> str:
        return f"{self.offset:020d}-{self.epoch:010d}.checkpoint"


class Snapshot(NamedTuple):
    """A snapshot that was read: its image, and the time of the last record in it (epoch ms)."""

    image: MetadataImage
    last_timestamp_ms: int


def snapshot_id(file_name: str) -> SnapshotId | None:
    match = SNAPSHOT_FILE.fullmatch(file_name)
    return None if match is None else SnapshotId(int(match["offset"]), int(match["epoch"]))


def snapshot_parts(image: MetadataImage, timestamp_ms: int, epoch: int = 0) -> Iterator[bytes]:
    """The bytes of the image's snapshot, a batch at a time; `timestamp_ms` is that of the last record in it."""
    yield _control(0, ControlType.SNAPSHOT_HEADER, _HEADER.pack(0, timestamp_ms, 0), timestamp_ms, epoch)
    offset = 1
    for entries in snapshot_entries(image):
        records = [(timestamp_ms, None, frame, ()) for frame in encode_metadata_records(entries)]
        batch = build_batch(records, leader_epoch=epoch)
        batch[:8] = offset.to_bytes(8, "big")
        yield bytes(batch)
        offset += len(records)
    yield _control(offset, ControlType.SNAPSHOT_FOOTER, _FOOTER.pack(0, 0), timestamp_ms, epoch)


def snapshot_entries(image: MetadataImage) -> Iterator[list[MetadataEntry]]:
    """All records of the image, in Kafka's order, about `BATCH_RECORDS` at a time."""
    waiting: list[MetadataEntry] = []
    count = 0
    for entry in _entries(image):
        for part in _cut(entry):
            waiting.append(part)
            count += record_count((part,))
            if count >= BATCH_RECORDS:
                yield waiting
                waiting, count = [], 0
    if waiting:
        yield waiting


def _cut(entry: MetadataEntry) -> Iterator[MetadataEntry]:
    if not isinstance(entry, PartitionRun):
        yield entry
        return
    for start in range(0, entry.length, BATCH_RECORDS):
        yield entry.between(start, min(start + BATCH_RECORDS, entry.length))


def _entries(image: MetadataImage) -> Iterator[MetadataEntry]:
    """The records of the image, without data that its metadata.version does not know (an unsafe downgrade drops it)."""
    level = image.features.get(METADATA_VERSION, ELIGIBLE_REPLICAS_SINCE)
    first = {METADATA_VERSION: image.features[METADATA_VERSION]} if METADATA_VERSION in image.features else {}
    for name, finalized in {**first, **image.features}.items():
        yield FeatureLevelRecord(name, finalized)
    yield from image.controllers.values()
    for broker in image.brokers.values():
        yield broker if level >= DIRECTORIES_SINCE else broker._replace(log_dirs=(), cordoned_log_dirs=None)
    for topic in image.topics_by_id.values():
        yield TopicRecord(topic.name, topic.topic_id)
        yield from _partitions(topic, level)
    for resource, configs in image.configs.items():
        for name, value in configs.items():
            yield ConfigRecord(resource.type, resource.name, name, value)
    for who, limits in image.quotas.items():
        for key, limit in limits.items():
            yield ClientQuotaRecord(tuple(QuotaEntity(*part) for part in who), key, limit)
    if image.next_producer_id != FIRST_PRODUCER_ID:
        yield ProducerIdsRecord(-1, -1, image.next_producer_id)
    for acl_id, acl in image.acls.items():
        yield AccessControlEntryRecord(acl_id, *acl)
    for user, credential in image.scram.items() if level >= SCRAM_SINCE else ():
        yield UserScramCredentialRecord(user.name, user.mechanism, *credential)


def _partitions(topic: TopicImage, level: int) -> Iterator[MetadataEntry]:
    assignment, start = topic.assignment, 0
    while start < len(assignment):
        partition, stop = assignment[start], start + 1
        while stop < len(assignment) and assignment[stop] is partition:
            stop += 1
        knows_eligible = level >= ELIGIBLE_REPLICAS_SINCE
        fields = {
            **partition._asdict(),
            "directories": partition.directories if level >= DIRECTORIES_SINCE else (),
            "eligible_leader_replicas": (partition.eligible_leader_replicas or None) if knows_eligible else None,
            "last_known_elr": (partition.last_known_elr or None) if knows_eligible else None,
        }
        first = PartitionRecord(start, topic.topic_id, **fields)
        yield first if stop == start + 1 else PartitionRun(first, stop - start)
        start = stop


def _control(offset: int, kind: ControlType, value: bytes, timestamp_ms: int, epoch: int) -> bytes:
    record = (timestamp_ms, _KEY.pack(0, kind), value, ())
    batch = build_batch([record], leader_epoch=epoch, extra_attributes=CONTROL_BIT)
    batch[:8] = offset.to_bytes(8, "big")
    return bytes(batch)


def read_snapshot(data: bytes, offset: int, place: str) -> Snapshot:
    """The image in the snapshot `data`, which replaces the log below `offset`.

    Raises MetadataCorrupt, naming `place`, if it is truncated, damaged, or has records that a snapshot cannot have.
    """
    ends: list[ControlType | None] = []
    timestamps = [-1]

    def batches() -> Iterator[Sequence[MetadataEntry]]:
        size = 0
        for position, header in iter_headers(data):
            if not check_crc(data, position, header):
                raise CorruptBatch(f"the batch at byte {position} does not match its CRC-32C")
            size = position + header.size_bytes
            if header.is_control:
                kind = control_type(data, position, header)
                ends.append(kind)
                if kind is ControlType.SNAPSHOT_HEADER:
                    timestamps.append(_time_in(data, position, header))
                continue
            values = [record.value or b"" for record in decode_records(data, position, header)]
            yield [*decode_metadata_records(values)]
        if size != len(data):
            raise CorruptBatch(f"{len(data) - size} bytes at the end are no whole batch")

    try:
        image = image_of_snapshot(offset, batches())
    except (CorruptBatch, MetadataRecordError) as error:
        raise MetadataCorrupt(offset, f"{place}: {error}") from error
    if not ends or ends[0] is not ControlType.SNAPSHOT_HEADER or ends[-1] is not ControlType.SNAPSHOT_FOOTER:
        raise MetadataCorrupt(offset, f"{place} has no header or no footer: it was never finished")
    return Snapshot(image, max(timestamps))


def _time_in(data: bytes, position: int, header: BatchHeader) -> int:
    """The last timestamp, from the header record. Kafka writes further control records after it in the same batch."""
    value = decode_records(data, position, header)[0].value
    if value is None or len(value) < _HEADER.size:
        raise CorruptBatch(f"the snapshot's header at byte {position} is too short")
    time: int = _HEADER.unpack_from(value)[1]
    return time
