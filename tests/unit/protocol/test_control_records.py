"""Transaction markers, byte for byte (section 0, rows 1 and 3)."""

import struct

import pytest

from fencepost.protocol.batch_header import CONTROL_BIT, CorruptBatch, check_crc, read_header
from fencepost.protocol.control_records import (
    MARKER_SIZE,
    ControlType,
    EndTxnMarker,
    control_type,
    end_txn_marker,
    read_marker,
)
from fencepost.protocol.record_batch import build_batch


@pytest.mark.parametrize(("commit", "kind"), [(False, 0), (True, 1)])
def test_a_marker_is_a_control_batch_of_one_record_section_0_rows_1_and_3(commit: bool, kind: int) -> None:
    batch = end_txn_marker(7000, 3, commit, 11, 1_700_000_000_000, base_offset=42, leader_epoch=5)
    header = read_header(batch)
    assert header.attributes == 0x30
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7000, 3, -1)
    assert (header.base_offset, header.last_offset, header.record_count) == (42, 42, 1)
    assert (header.partition_leader_epoch, header.max_timestamp) == (5, 1_700_000_000_000)
    assert check_crc(batch, 0, header)
    assert len(batch) == MARKER_SIZE
    assert read_marker(batch, 0, header) == EndTxnMarker(ControlType(kind), 0, 11)
    # size 32/2, attributes, deltas, key size 4, key, value size 6, value, no headers
    record = struct.pack(">bbbbb hh b hi b", 0x20, 0, 0, 0, 8, 0, kind, 12, 0, 11, 0)
    assert batch[61:] == record


def test_the_marker_can_stand_anywhere_in_a_buffer() -> None:
    batch = bytes(9) + end_txn_marker(1, 0, True, 0, 5)
    header = read_header(batch, 9)
    assert read_marker(batch, 9, header).type is ControlType.COMMIT
    assert control_type(memoryview(batch), 9, header) is ControlType.COMMIT


def control_batch(key: bytes | None, value: bytes | None) -> bytearray:
    return build_batch([(0, key, value, ())], extra_attributes=CONTROL_BIT)


def test_an_unknown_control_type_is_none_and_no_marker() -> None:
    batch = control_batch(struct.pack(">hh", 0, 99), b"")
    assert control_type(batch, 0, read_header(batch)) is None
    with pytest.raises(CorruptBatch):
        read_marker(batch, 0, read_header(batch))


def test_a_leader_change_is_no_marker() -> None:
    batch = control_batch(struct.pack(">hh", 0, 2), bytes(6))
    assert control_type(batch, 0, read_header(batch)) is ControlType.LEADER_CHANGE
    with pytest.raises(CorruptBatch):
        read_marker(batch, 0, read_header(batch))


def test_later_and_longer_keys_and_values_are_read_as_far_as_known() -> None:
    batch = control_batch(struct.pack(">hhi", 1, 1, 77), struct.pack(">hiq", 1, 8, 77))
    assert read_marker(batch, 0, read_header(batch)) == EndTxnMarker(ControlType.COMMIT, 1, 8)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, bytes(6)),
        (b"", bytes(6)),
        (bytes(3), bytes(6)),
        (struct.pack(">hh", -1, 1), bytes(6)),
        (bytes(4), None),
        (bytes(4), bytes(5)),
    ],
)
def test_short_or_missing_keys_and_values_are_corrupt(key: bytes | None, value: bytes | None) -> None:
    batch = control_batch(key, value)
    with pytest.raises(CorruptBatch):
        read_marker(batch, 0, read_header(batch))


def test_data_and_empty_batches_hold_no_marker() -> None:
    data = build_batch([(0, struct.pack(">hh", 0, 1), bytes(6), ())])
    empty = build_batch([], extra_attributes=CONTROL_BIT)
    for batch in (data, empty):
        with pytest.raises(CorruptBatch):
            control_type(batch, 0, read_header(batch))
