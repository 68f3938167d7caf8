"""The bytes of `__share_group_state`: as Kafka 4.4.0's ShareCoordinatorRecordSerde writes them."""

import pytest

from fencepost.coordinator.partitioning import partition_for
from fencepost.coordinator.share.key_text import key_text
from fencepost.coordinator.share.records import (
    Removed,
    ShareRecord,
    Snapshot,
    UnreadableRecord,
    Update,
    decode,
    encode,
)
from fencepost.coordinator.share.values import ShareKey, StateBatch

KEY = ShareKey("gs1", bytes(range(1, 17)), 5)
BATCHES = (StateBatch(100, 109, 2, 1), StateBatch(110, 110, 0, 3))
NAME = "00036773310102030405060708090a0b0c0d0e0f1000000005"
BATCH_BYTES = "030000000000000064000000000000006d02000100000000000000006e000000000000006e00000300"


@pytest.mark.parametrize(
    ("record", "key", "value"),
    [
        (
            Snapshot(KEY, 3, 2, 7, 100, 10, 1_700_000_000_000, 1_700_000_000_123, BATCHES),
            "0000" + NAME,
            f"000000000003000000020000000700000000000000640000018bcfe568000000018bcfe5687b{BATCH_BYTES}0100040000000a",
        ),
        (
            Update(KEY, 3, 7, 100, 10, BATCHES),
            "0001" + NAME,
            f"000000000003000000070000000000000064{BATCH_BYTES}0100040000000a",
        ),
        (
            Snapshot(KEY, 0, 1, 0, -1, -1, 5, 6, ()),
            "0000" + NAME,
            "0000000000000000000100000000ffffffffffffffff000000000000000500000000000000060100",
        ),
        (Update(KEY, 0, 0, -1, -1, ()), "0001" + NAME, "00000000000000000000ffffffffffffffff0100"),
        (Removed(KEY), "0000" + NAME, None),
    ],
    ids=["snapshot", "update", "empty-snapshot", "empty-update", "tombstone"],
)
def test_records_have_the_bytes_that_kafka_writes(record: ShareRecord, key: str, value: str | None) -> None:
    """Golden: ShareCoordinatorRecordHelpers and ShareCoordinatorRecordSerde of Kafka 4.4.0, run on these values."""
    encoded = bytes.fromhex(key), None if value is None else bytes.fromhex(value)
    assert encode(record) == encoded
    assert decode(*encoded) == record


def test_a_time_is_a_tagged_field_of_its_batch() -> None:
    """H3: Kafka's readers pass over the tag 1000; a batch without a time has Kafka's bytes."""
    held = (*BATCHES, StateBatch(111, 112, 0, 1, 1_700_000_000_000))
    key, value = encode(Update(KEY, 3, 7, 100, 10, held))
    assert value is not None
    plain = BATCH_BYTES.replace("03", "04", 1) + "000000000000006f00000000000000700000" + "01"
    assert value.hex() == f"000000000003000000070000000000000064{plain}01e807080000018bcfe568000100040000000a"
    assert decode(key, value) == Update(KEY, 3, 7, 100, 10, held)


def test_records_of_a_later_kafka_are_skipped() -> None:
    """KIP-915: an unknown type of key is not an error."""
    assert decode(b"\0\2" + bytes.fromhex(NAME), b"\0\0") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""),
        (b"\0", b""),
        (b"\0\0\0", b"\0\0"),
        (bytes.fromhex("0000" + NAME), b"\0\1"),
        (bytes.fromhex("0000" + NAME), b"\0\0\0"),
        (bytes.fromhex("0001" + NAME), None),
    ],
)
def test_what_is_no_record_is_unreadable(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(UnreadableRecord):
        decode(key, value)


@pytest.mark.parametrize(("group_id", "partition"), [("gs1", 19), ("orders", 43), ("größe", 13), ("", 26)])
def test_share_partitions_are_where_kafkas_tools_look_for_them(group_id: str, partition: int) -> None:
    """ShareCoordinatorService.partitionFor: golden, from SharePartitionKey.asCoordinatorKey of Kafka 4.4.0."""
    key = key_text(KEY._replace(group_id=group_id))
    assert key == f"{group_id}:AQIDBAUGBwgJCgsMDQ4PEA:5"
    assert partition_for(key, 50) == partition
