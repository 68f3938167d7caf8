"""Metadata records in KRaft's frames: bytes worked out by hand from Kafka's record schemas, and what is refused."""

import pytest

from fencepost.protocol.metadata_entries import PartitionRun, record_count
from fencepost.protocol.metadata_record_types import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntity,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)
from fencepost.protocol.metadata_records import (
    MetadataRecordError,
    decode_metadata_record,
    decode_metadata_records,
    encode_metadata_record,
    encode_metadata_records,
)

ID = bytes(range(16))
ID_HEX = ID.hex()
# frame version, type, version | body; strings are compact, tags are counted at the end
FRAMES: list[tuple[MetadataRecord, str]] = [
    (TopicRecord("foo", ID), f"010200 04666f6f {ID_HEX} 00"),
    (
        PartitionRecord(7, ID, (1,), (1,), leader=1, leader_epoch=3, partition_epoch=4, directories=(bytes(16),)),
        f"010301 00000007 {ID_HEX} 02 00000001 02 00000001 01 01 00000001 00000003 00000004 02 {'00' * 16} 00",
    ),
    (ConfigRecord(2, "foo", "a.b", "1"), "010400 02 04666f6f 04612e62 0231 00"),
    (ConfigRecord(4, "", "a", None), "010400 04 01 0261 00 00"),
    (RemoveTopicRecord(ID), f"010900 {ID_HEX} 00"),
    (FeatureLevelRecord("metadata.version", 25), "010c00 11 6d657461646174612e76657273696f6e 0019 00"),
    (ProducerIdsRecord(1, -1, 1001), "010f00 00000001 ffffffffffffffff 00000000000003e9 00"),
    (
        RegisterBrokerRecord(
            1,
            False,
            ID,
            9,
            (BrokerEndpoint("PLAINTEXT", "h", 9092, 0),),
            (BrokerFeature("metadata.version", 7, 25),),
            "r",
            False,
            log_dirs=(ID,),
        ),
        f"010003 00000001 00 {ID_HEX} 0000000000000009 02 0a 504c41494e54455854 0268 2384 0000 00"
        f" 02 11 6d657461646174612e76657273696f6e 0007 0019 00 0272 00 00 01 00 11 02 {ID_HEX}",
    ),
    (
        RegisterBrokerRecord(1, False, ID, 9, (BrokerEndpoint("PLAINTEXT", "h", 9092, 0),), fenced=False),
        f"010001 00000001 {ID_HEX} 0000000000000009 02 0a 504c41494e54455854 0268 2384 0000 00 01 00 00 00 00",
    ),
    (UnregisterBrokerRecord(1, 9), "010100 00000001 0000000000000009 00"),
    (PartitionChangeRecord(7, ID), f"010501 00000007 {ID_HEX} 00"),
    (PartitionChangeRecord(7, ID, isr=(1,), leader=2), f"010501 00000007 {ID_HEX} 02 00 05 02 00000001 01 04 00000002"),
    (PartitionChangeRecord(7, ID, eligible_leader_replicas=(1,)), f"010502 00000007 {ID_HEX} 01 06 05 02 00000001"),
    (FenceBrokerRecord(1, 9), "010700 00000001 0000000000000009 00"),
    (UnfenceBrokerRecord(1, 9), "010800 00000001 0000000000000009 00"),
    (UserScramCredentialRecord("u", 1, b"s", b"k", b"v", 4096), "010b00 0275 01 0273 026b 0276 00001000 00"),
    (
        ClientQuotaRecord((QuotaEntity("user", "a"), QuotaEntity("client-id", None)), "k", 2.0),
        "010e00 03 05 75736572 0261 00 0a 636c69656e742d6964 00 00 026b 4000000000000000 00 00",
    ),
    (BrokerRegistrationChangeRecord(1, 9, fenced=1), "011102 00000001 0000000000000009 01 00 01 01"),
    (
        AccessControlEntryRecord(ID, 2, "t", 3, "User:a", "*", 3, 3),
        f"011200 {ID_HEX} 02 0274 03 07 557365723a61 022a 03 03 00",
    ),
    (RemoveAccessControlEntryRecord(ID), f"011300 {ID_HEX} 00"),
    (NoOpRecord(), "011400 00"),
    (RemoveUserScramCredentialRecord("u", 2), "011600 0275 02 00"),
    (
        RegisterControllerRecord(1, ID, False, (BrokerEndpoint("C", "h", 1, 0),)),
        f"011b00 00000001 {ID_HEX} 00 02 0243 0268 0001 0000 00 01 00",
    ),
    (ClearElrRecord("t"), "011c00 0274 00"),
    (BeginTransactionRecord("ab"), "011700 01 00 03 036162"),
    (BeginTransactionRecord(), "011700 00"),
    (EndTransactionRecord(), "011800 00"),
    (AbortTransactionRecord("ab"), "011900 01 00 03 036162"),
    (AbortTransactionRecord(), "011900 00"),
]


@pytest.mark.parametrize(("record", "frame"), FRAMES, ids=lambda value: type(value).__name__)
def test_records_are_kafkas_bytes(record: MetadataRecord, frame: str) -> None:
    """kafka-rules E.1 and the record schemas of the metadata module."""
    data = bytes.fromhex(frame)
    assert encode_metadata_record(record) == data
    assert decode_metadata_record(data) == record
    assert decode_metadata_record(memoryview(data)) == record


def test_a_run_of_partitions_stands_in_the_log_as_so_many_records() -> None:
    """Memory holds one where the log holds a million; what was cut differently is read as the same run."""
    first = PartitionRecord(5, ID, (1,), (1,), leader=1, directories=(bytes(16),))
    run = PartitionRun(first, 300)
    frames = encode_metadata_records([run])
    assert frames == [encode_metadata_record(record) for record in run.records()]
    assert [*decode_metadata_records(frames)] == [run]
    assert encode_metadata_records([run.between(0, 7), run.between(7, 300)]) == frames
    other = PartitionRecord(305, ID, (2,), (2,), leader=2, directories=(bytes(16),))
    mixed = [TopicRecord("a", ID), run, other, NoOpRecord()]
    assert [*decode_metadata_records(encode_metadata_records(mixed))] == mixed
    assert record_count(mixed) == 303


def test_a_gap_in_the_numbers_or_another_topic_ends_a_run() -> None:
    records = [
        PartitionRecord(number, topic, (1,), (1,), leader=1) for topic in (ID, bytes(16)) for number in (0, 1, 3, 2)
    ]
    found = [*decode_metadata_records(encode_metadata_records(records))]
    assert [entry.length if isinstance(entry, PartitionRun) else 1 for entry in found] == [2, 1, 1, 2, 1, 1]


def test_many_at_once_are_the_same_bytes() -> None:
    """The short cut for partitions that differ in their number only changes nothing."""
    records: list[MetadataRecord] = [
        *(record for record, _ in FRAMES),
        *(PartitionRecord(number, ID, (1,), (1,), leader=1, directories=(bytes(16),)) for number in (0, 1, 300)),
        PartitionRecord(2, bytes(16), (1,), (1,), leader=1),
        PartitionRecord(3, bytes(16), (2,), (2,), leader=2),
    ]
    assert encode_metadata_records(records) == [encode_metadata_record(record) for record in records]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_older_and_newer_partition_records_are_read(version: int) -> None:
    """Versions 0 to 2; tags 1 and 2 of version 2 are the eligible leader replicas (KIP-966)."""
    body = f"00000007 {ID_HEX} 02 00000001 02 00000001 01 01 00000001 00000003 00000004"
    tail = {0: "00", 1: f"02 {ID_HEX} 00", 2: f"02 {ID_HEX} 01 01 05 02 00000009"}[version]
    record = decode_metadata_record(bytes.fromhex(f"0103{version:02x} {body} {tail}"))
    assert isinstance(record, PartitionRecord)
    assert (record.partition_id, record.leader_epoch, record.partition_epoch) == (7, 3, 4)
    assert record.directories == ((ID,) if version else ())
    assert record.eligible_leader_replicas == ((9,) if version == 2 else None)


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        ("", "cut off"),
        ("01", "cut off"),
        ("000200", "frame version 0"),
        ("020200", "frame version 2"),
        ("016300", "type 99"),
        ("010201", "TopicRecord version 1"),
        (f"010200 04666f6f {ID_HEX}", "TopicRecord"),
        (f"010200 04666f6f {ID_HEX} 00 00", "left over"),
        ("ffffffff", "too long"),
    ],
)
def test_what_is_no_record_is_refused_with_the_reason(frame: str, why: str) -> None:
    with pytest.raises(MetadataRecordError, match=why):
        decode_metadata_record(bytes.fromhex(frame))
