"""The bytes of `__consumer_offsets` are Kafka's (row G8; OffsetCommitKey/Value, GroupMetadataKey/Value)."""

import pytest

from fencepost.coordinator.group.codec import CorruptRecord, decode, encode
from fencepost.coordinator.group.records import (
    CommittedOffset,
    GroupRemoved,
    GroupSaved,
    OffsetCommitted,
    OffsetPending,
    OffsetRemoved,
)
from fencepost.coordinator.group.state import Member
from fencepost.protocol.topics import TopicPartition

TP = TopicPartition("t", 3)
KEY = bytes.fromhex("0001 0001 67 0001 74 00000003")
MEMBER = Member("m-1", "i", "c", "/h", 6000, 7000, (("range", b"\x01\x02"),), b"\x03")


@pytest.mark.parametrize("topic_id", [None, bytes(range(16))])
def test_an_offset_is_written_as_offset_commit_value_4_with_the_id_of_its_topic_g6(topic_id: bytes | None) -> None:
    record = OffsetCommitted("g", TP, CommittedOffset(258, 7, "me", 1000, topic_id=topic_id))
    key, value = encode(record)
    assert key == KEY
    tags = "00" if topic_id is None else "01 00 10" + topic_id.hex()
    assert value == bytes.fromhex("0004 0000000000000102 00000007 03 6d65 00000000000003e8" + tags)
    assert decode(key, value) == record


@pytest.mark.parametrize("size", [0, 126, 127, 4096, 20_000])
def test_a_note_of_any_size_is_read_back(size: int) -> None:
    record = OffsetCommitted("g", TP, CommittedOffset(1, -1, "é" * size, 1000))
    assert decode(*encode(record)) == record


def test_a_retention_of_its_own_is_written_as_offset_commit_value_1() -> None:
    record = OffsetCommitted("g", TP, CommittedOffset(1, -1, "", 1000, 2000))
    key, value = encode(record)
    assert value == bytes.fromhex("0001 0000000000000001 0000 00000000000003e8 00000000000007d0")
    assert decode(key, value) == record


def test_a_pending_offset_has_the_bytes_of_a_plain_one() -> None:
    plain = OffsetCommitted("g", TP, CommittedOffset(5, 0, "x", 9))
    assert encode(OffsetPending(42, plain)) == encode(plain)


def test_a_group_is_written_as_group_metadata_value_3() -> None:
    record = GroupSaved("g", "consumer", 4, "range", "m-1", 1000, (MEMBER,))
    key, value = encode(record)
    assert key == bytes.fromhex("0002 0001 67")
    assert value == bytes.fromhex(
        "0003 0008 636f6e73756d6572 00000004 0005 72616e6765 0003 6d2d31 00000000000003e8 00000001"
        "0003 6d2d31 0001 69 0001 63 0002 2f68 00001b58 00001770 00000002 0102 00000001 03"
    )
    assert decode(key, value) == record


def test_tombstones_forget_offsets_and_groups() -> None:
    assert encode(OffsetRemoved("g", TP)) == (KEY, None)
    assert decode(KEY, None) == OffsetRemoved("g", TP)
    assert decode(*encode(GroupRemoved("g"))) == GroupRemoved("g")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0000 0000000000000001 0001 61 0000000000000002", CommittedOffset(1, -1, "a", 2)),
        ("0002 0000000000000001 0001 61 0000000000000002", CommittedOffset(1, -1, "a", 2)),
        ("0004 0000000000000001 00000009 02 61 0000000000000002 00", CommittedOffset(1, 9, "a", 2)),
        ("0004 0000000000000001 00000009 02 61 0000000000000002 01 07 02 aabb", CommittedOffset(1, 9, "a", 2)),
        ("0004 0000000000000001 00000009 02 61 0000000000000002 01 00 10" + "00" * 16, CommittedOffset(1, 9, "a", 2)),
    ],
)
def test_every_version_of_an_offset_is_read(value: str, expected: CommittedOffset) -> None:
    old_key = b"\0\0" + KEY[2:]
    assert decode(old_key, bytes.fromhex(value)) == OffsetCommitted("g", TP, expected)


@pytest.mark.parametrize(
    ("value", "since_ms", "instance_id", "rebalance_timeout_ms"),
    [
        ("0000 0001 70 00000004 ffff ffff 00000001 0001 6d 0001 63 0001 68 00001770 00000000 00000000", -1, None, 6000),
        (
            "0001 0001 70 00000004 ffff ffff 00000001 0001 6d 0001 63 0001 68 00001b58 00001770 00000000 00000000",
            -1,
            None,
            7000,
        ),
        (
            "0002 0001 70 00000004 ffff ffff 0000000000000005 00000001 0001 6d 0001 63 0001 68 00001b58 00001770"
            "00000000 00000000",
            5,
            None,
            7000,
        ),
        (
            "0004 02 70 00000004 00 00 0000000000000005 02 02 6d 02 69 02 63 02 68 00001b58 00001770 01 01 00 00",
            5,
            "i",
            7000,
        ),
    ],
)
def test_every_version_of_a_group_is_read(
    value: str, since_ms: int, instance_id: str | None, rebalance_timeout_ms: int
) -> None:
    member = Member("m", instance_id, "c", "h", 6000, rebalance_timeout_ms, (("", b""),))
    assert decode(bytes.fromhex("0002 0001 67"), bytes.fromhex(value)) == GroupSaved(
        "g", "p", 4, None, None, since_ms, (member,)
    )


def test_keys_of_newer_group_types_are_passed_over() -> None:
    assert decode(bytes.fromhex("0011 0001 67"), b"\0\0") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""),
        (b"\0", b""),
        (KEY[:-1], None),
        (KEY, b"\0\5"),
        (KEY, bytes.fromhex("0004 0000000000000001 00000009 02 61 0000000000000002 01 00 02 aabb")),
        (KEY, bytes.fromhex("0003 0000000000000102 00000007 0009 6d65")),
        (bytes.fromhex("0002 0001 67"), bytes.fromhex("0003 0000 00000004 ffff ffff 0000000000000000 7fffffff")),
        (bytes.fromhex("0002 0001 67"), bytes.fromhex("0004 ff ff ff ff ff ff")),
    ],
)
def test_what_can_not_be_read_is_corrupt(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(CorruptRecord):
        decode(key, value)
