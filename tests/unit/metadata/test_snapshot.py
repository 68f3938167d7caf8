"""Images as snapshots (row M1, KIP-630): Kafka's format, the whole of an image, nothing of a transaction, no half."""

import pytest

from fencepost.coordinator.metadata.delta import MetadataCorrupt
from fencepost.coordinator.metadata.image import MetadataImage
from fencepost.coordinator.metadata.snapshot import (
    SnapshotId,
    read_snapshot,
    snapshot_entries,
    snapshot_id,
    snapshot_parts,
)
from fencepost.coordinator.metadata.transactions import MetadataLoader
from fencepost.protocol.batch_header import iter_headers
from fencepost.protocol.control_records import ControlType, control_type
from fencepost.protocol.metadata_entries import MetadataEntry, PartitionRun, record_count
from fencepost.protocol.metadata_record_types import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerEndpoint,
    ClientQuotaRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntity,
    RegisterBrokerRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from fencepost.protocol.metadata_records import encode_metadata_records
from fencepost.protocol.record_batch import build_batch

ID = b"i" * 16
EVERYTHING: list[MetadataEntry] = [
    FeatureLevelRecord("transaction.version", 2),
    FeatureLevelRecord("metadata.version", 25),
    RegisterBrokerRecord(1, False, ID, 9, (BrokerEndpoint("PLAINTEXT", "h", 9092),), rack="r", fenced=False),
    TopicRecord("wide", ID),
    PartitionRun(PartitionRecord(0, ID, (1,), (1,), leader=1, directories=(bytes(16),)), 5000),
    PartitionChangeRecord(7, ID, isr=(1,), leader=1, eligible_leader_replicas=(1,), last_known_elr=(1,)),
    ConfigRecord(2, "wide", "retention.ms", "7"),
    ConfigRecord(4, "", "log.cleaner.threads", "2"),
    ConfigRecord(32, "g", "consumer.session.timeout.ms", "5000"),
    ProducerIdsRecord(1, -1, 3001),
    ClientQuotaRecord((QuotaEntity("user", "a"), QuotaEntity("client-id", None)), "producer_byte_rate", 7.5),
    AccessControlEntryRecord(b"a" * 16, 2, "wide", 3, "User:a", "*", 3, 3),
    UserScramCredentialRecord("u", 1, b"salt", b"stored", b"server", 8192),
]


def image_of(entries: list[MetadataEntry]) -> MetadataImage:
    loader = MetadataLoader()
    loader.load_batch(0, entries)
    return loader.image


IMAGE = image_of(EVERYTHING)


def snapshot_of(image: MetadataImage) -> bytes:
    return b"".join(snapshot_parts(image, 1234))


def test_m1_a_snapshot_holds_the_whole_image() -> None:
    found = read_snapshot(snapshot_of(IMAGE), IMAGE.offset, "here")
    assert found.image == IMAGE
    assert found.last_timestamp_ms == 1234
    assert found.image.topics_by_name["wide"].assignment[7].leader_epoch == 1


def test_m1_the_file_is_kafkas() -> None:
    """Header and footer are control batches, offsets count from 0 without a gap, metadata.version comes first."""
    data = snapshot_of(IMAGE)
    batches = list(iter_headers(data))
    kinds = [control_type(data, position, header) for position, header in batches if header.is_control]
    assert kinds == [ControlType.SNAPSHOT_HEADER, ControlType.SNAPSHOT_FOOTER]
    assert batches[0][1].is_control
    assert batches[-1][1].is_control
    offset = 0
    for _, header in batches:
        assert header.base_offset == offset
        offset = header.next_offset
    assert sum(header.record_count for _, header in batches) == offset
    first = next(iter(snapshot_entries(IMAGE)))[0]
    assert first == FeatureLevelRecord("metadata.version", 25)
    assert max(record_count(entries) for entries in snapshot_entries(IMAGE)) <= 4000


def test_m1_the_name_says_offset_and_epoch() -> None:
    assert SnapshotId(17003, 1).file_name == "00000000000000017003-0000000001.checkpoint"
    assert snapshot_id("00000000000000017003-0000000001.checkpoint") == SnapshotId(17003, 1)
    for name in ("00000000000000017003-0000000001.checkpoint.tmp", "1-1.checkpoint", "00000000000000017003.snapshot"):
        assert snapshot_id(name) is None


def test_m2_a_snapshot_of_what_came_by_transactions_has_no_transaction_records() -> None:
    """S0 "Snapshots": they are a mechanism of the log alone, and aborted ones leave nothing."""
    loader = MetadataLoader()
    topic: list[MetadataEntry] = [TopicRecord("a", ID), PartitionRecord(0, ID, (1,), (1,), leader=1)]
    lost: list[MetadataEntry] = [TopicRecord("lost", b"l" * 16), PartitionRecord(0, b"l" * 16, (1,), (1,), leader=1)]
    loader.load_batch(0, [BeginTransactionRecord("t"), *lost, AbortTransactionRecord(), BeginTransactionRecord()])
    loader.load_batch(5, [*topic, EndTransactionRecord()])
    entries = [entry for batch in snapshot_entries(loader.image) for entry in batch]
    assert entries == topic


@pytest.mark.parametrize("record", [BeginTransactionRecord(), EndTransactionRecord(), AbortTransactionRecord()])
def test_m2_a_transaction_record_in_a_snapshot_is_refused(record: MetadataEntry) -> None:
    """E.3, E.4: illegal inside snapshots."""
    parts = list(snapshot_parts(IMAGE, 1))
    bad = build_batch([(1, None, encode_metadata_records([record])[0], ())])
    with pytest.raises(MetadataCorrupt, match="in a snapshot"):
        read_snapshot(b"".join([parts[0], bytes(bad), *parts[1:]]), 9, "here")


def test_m1_a_snapshot_that_was_never_finished_or_was_damaged_is_none() -> None:
    data = snapshot_of(IMAGE)
    parts = list(snapshot_parts(IMAGE, 1))
    for broken in (b"", data[:100], data[:-1], b"".join(parts[:-1]), b"".join(parts[1:]), data + b"x"):
        with pytest.raises(MetadataCorrupt):
            read_snapshot(broken, 9, "here")
    for position in range(20, len(data), len(data) // 50):
        flipped = bytearray(data)
        flipped[position] ^= 0x40
        try:
            found = read_snapshot(bytes(flipped), IMAGE.offset, "here")
        except MetadataCorrupt:
            continue
        assert found.image == IMAGE, "only offsets and epochs of batches, which mean nothing, are not under a checksum"


@pytest.mark.parametrize(
    ("level", "directories", "eligible", "scram"),
    [(25, True, True, 1), (22, True, False, 1), (16, False, False, 1), (12, False, False, 1), (10, False, False, 0)],
)
def test_m3_what_a_level_does_not_know_is_left_out(level: int, directories: bool, eligible: bool, scram: int) -> None:
    """KIP-778: an unsafe downgrade gives it up; software of that level must be able to read the snapshot."""
    image = image_of([*EVERYTHING, FeatureLevelRecord("metadata.version", level)])
    found = read_snapshot(snapshot_of(image), image.offset, "here").image
    partition = found.topics_by_name["wide"].assignment[7]
    assert (bool(partition.directories), bool(partition.eligible_leader_replicas)) == (directories, eligible)
    assert len(found.scram) == scram
