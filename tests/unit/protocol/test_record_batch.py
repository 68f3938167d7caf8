"""The batch header: its layout, its patches in place, and what is refused (section 0, row 4)."""

import struct

import crc32c
import pytest

from fencepost.protocol.batch_header import (
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    CorruptBatch,
    InvalidBatch,
    assign_offset,
    check_crc,
    iter_headers,
    read_header,
    set_log_append_time,
    set_producer,
)
from fencepost.protocol.compression import Compression
from fencepost.protocol.record_batch import build_batch
from fencepost.protocol.records import NewRecord, Record, decode_records
from tests.kit.record_code import record_code  # noqa: F401

RECORDS: list[NewRecord] = [(1000, b"k", b"v", ()), (1005, None, b"w", (("h", b"1"),)), (990, b"", None, ())]


def test_the_layout_is_the_61_bytes_of_section_0_row_4() -> None:
    batch = build_batch(
        RECORDS,
        base_offset=2**40,
        producer_id=5,
        producer_epoch=6,
        base_sequence=7,
        transactional=True,
        leader_epoch=8,
        compression=Compression.GZIP,
    )
    fields = struct.unpack_from(">qiibIhiqqqhii", batch)
    crc = crc32c.crc32c(bytes(batch[21:]))
    assert fields == (2**40, len(batch) - 12, 8, 2, crc, 0x11, 2, 1000, 1005, 5, 6, 7, 3)


def test_the_headers_properties_follow_its_fields() -> None:
    header = read_header(build_batch(RECORDS, base_offset=10, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2))
    assert (header.last_offset, header.next_offset, header.size_bytes) == (12, 13, header.batch_length + 12)
    assert header.last_sequence == 0
    assert (header.is_transactional, header.is_control, header.has_delete_horizon) == (False, False, False)
    assert (header.compression, header.timestamp_type) == (Compression.NONE, 0)


def test_each_attribute_bit_has_its_meaning_section_0_rows_3_and_18() -> None:
    batch = build_batch(RECORDS, transactional=True, log_append_time_ms=5, extra_attributes=DELETE_HORIZON_BIT)
    header = read_header(batch)
    assert header.attributes == 0x58
    assert (header.is_transactional, header.has_delete_horizon, header.timestamp_type) == (True, True, 1)


def test_assigning_an_offset_keeps_the_crc() -> None:
    batch = build_batch(RECORDS)
    before = read_header(batch)
    assign_offset(batch, 0, 77, 9)
    header = read_header(batch)
    assert header == before._replace(base_offset=77, partition_leader_epoch=9)
    assert check_crc(batch, 0, header)
    assert [record.offset for record in decode_records(batch, 0, header)] == [77, 78, 79]


def test_log_append_time_holds_for_every_record_kip_32() -> None:
    batch = bytearray(3) + build_batch(RECORDS)
    set_log_append_time(batch, 3, 123_456)
    header = read_header(batch, 3)
    assert (header.timestamp_type, header.max_timestamp, header.base_timestamp) == (1, 123_456, 1000)
    assert check_crc(batch, 3, header)
    assert {record.timestamp_ms for record in decode_records(batch, 3, header)} == {123_456}


def test_a_producers_identity_can_be_set_after_the_batch_was_built() -> None:
    batch = build_batch(RECORDS)
    set_producer(batch, 0, 9000, 4, 17)
    header = read_header(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9000, 4, 17)
    assert batch == build_batch(RECORDS, producer_id=9000, producer_epoch=4, base_sequence=17)
    assert check_crc(batch, 0, header)


def test_the_crc_covers_everything_after_it_and_nothing_before() -> None:
    batch = build_batch(RECORDS)
    header = read_header(batch)
    for position in range(len(batch)):
        broken = bytearray(batch)
        broken[position] ^= 0x10
        assert check_crc(broken, 0, header) == (position < 21)


def test_walking_ends_before_an_incomplete_last_batch() -> None:
    first, second = build_batch(RECORDS), build_batch(RECORDS, base_offset=3)
    whole = bytes(first + second)
    for size in range(len(first), len(whole)):
        assert [at for at, _ in iter_headers(whole[:size])] == [0]
    assert [(at, h.base_offset) for at, h in iter_headers(memoryview(whole))] == [(0, 0), (len(first), 3)]
    assert [at for at, _ in iter_headers(whole, len(first))] == [len(first)]
    assert [at for at, _ in iter_headers(whole, 0, len(whole) - 1)] == [0]
    assert list(iter_headers(b"")) == []


def test_a_header_at_every_cut_is_corrupt() -> None:
    batch = bytes(build_batch(RECORDS))
    for size in range(len(batch)):
        with pytest.raises(CorruptBatch):
            read_header(batch[:size])
    assert read_header(batch[:HEADER_SIZE], whole=False) == read_header(batch)
    with pytest.raises(CorruptBatch):
        read_header(batch, len(batch) + 5)


def patched(fmt: str, at: int, value: int) -> bytearray:
    batch = build_batch(RECORDS)
    struct.pack_into(fmt, batch, at, value)
    return batch


@pytest.mark.parametrize("magic", [0, 1, 3, -1])
def test_other_formats_than_v2_are_refused(magic: int) -> None:
    with pytest.raises(CorruptBatch, match=f"magic is {magic}"):
        read_header(patched(">b", 16, magic))


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48, 2**31 - 1])
def test_lengths_that_hold_no_header_or_pass_the_buffer_are_refused(length: int) -> None:
    with pytest.raises(CorruptBatch, match="byte 0"):
        read_header(patched(">i", 8, length))


@pytest.mark.parametrize(("at", "value"), [(23, -1), (23, 1), (57, -1), (57, 4), (57, 2**31 - 1)])
def test_counts_that_contradict_each_other_are_invalid(at: int, value: int) -> None:
    with pytest.raises(InvalidBatch):
        read_header(patched(">i", at, value))


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs_are_invalid(codec: int) -> None:
    with pytest.raises(InvalidBatch, match="compression"):
        read_header(patched(">h", 21, codec))


def test_compaction_keeps_the_span_of_a_batch_whose_records_are_gone() -> None:
    kept = [Record(12, 5, b"a", b"b"), Record(15, 6, b"c", None)]
    batch = build_batch(kept, base_offset=10, last_offset_delta=9)
    header = read_header(batch)
    assert (header.base_offset, header.last_offset, header.record_count) == (10, 19, 2)
    assert decode_records(batch, 0, header) == kept
    empty = read_header(build_batch([], base_offset=10, last_offset_delta=9, compression=Compression.ZSTD))
    assert (empty.size_bytes, empty.next_offset, empty.record_count) == (HEADER_SIZE, 20, 0)


def test_records_must_rise_and_end_within_the_batch() -> None:
    with pytest.raises(ValueError, match="does not rise"):
        build_batch([Record(5, 0, None, None), Record(5, 0, None, None)], base_offset=5)
    with pytest.raises(ValueError, match="does not rise"):
        build_batch([Record(4, 0, None, None)], base_offset=5)
    with pytest.raises(ValueError, match="batch ends at"):
        build_batch(RECORDS, last_offset_delta=1)
