"""Taking records out of a batch leaves the bytes of the others as they are (row L4)."""

import pytest

from fencepost.protocol.batch_header import CorruptBatch, check_crc, read_header
from fencepost.protocol.record_batch import build_batch
from fencepost.protocol.record_filter import emptied, filtered, packed, scan, vacated
from fencepost.protocol.records import decode_records, unpack_records

RECORDS = [
    (1000, b"a", b"1", ()),
    (990, b"b", None, (("h", b"x"), ("n", None))),
    (5_000_000, None, b"v" * 200, ()),
    (-1, b"", b"", ()),
]


def batch() -> bytes:
    return bytes(
        build_batch(RECORDS, base_offset=50, producer_id=7, producer_epoch=2, base_sequence=9, transactional=True)
    )


def test_scanning_sees_what_decoding_does() -> None:
    data = batch()
    header = read_header(data)
    decoded = decode_records(data, 0, header)
    scanned = list(scan(unpack_records(data, 0, header), header))
    assert [(r.offset, r.timestamp_ms, r.key, r.has_value) for r in scanned] == [
        (r.offset, r.timestamp_ms, r.key, r.value is not None) for r in decoded
    ]


@pytest.mark.parametrize("horizon_ms", [None, 9_000_000, 0])
def test_what_stays_is_decoded_as_before_also_with_a_delete_horizon(horizon_ms: int | None) -> None:
    """KIP-534: the horizon takes the place of the base timestamp; records keep their timestamps all the same."""
    data = batch()
    header = read_header(data)
    body = unpack_records(data, 0, header)
    kept = [record for record in scan(body, header) if record.offset in (51, 53)]
    _, rebuilt = packed(*filtered(header, body, kept, horizon_ms))
    after = read_header(rebuilt)
    assert check_crc(rebuilt, 0, after)
    assert decode_records(rebuilt, 0, after) == [decode_records(data, 0, header)[index] for index in (1, 3)]
    assert (after.base_offset, after.last_offset, after.last_sequence) == (50, 53, header.last_sequence)
    assert (after.record_count, after.max_timestamp) == (2, 990)
    assert (after.has_delete_horizon, after.base_timestamp) == (
        horizon_ms is not None,
        horizon_ms or after.base_timestamp,
    )


def test_the_oldest_timestamp_there_is_gets_a_delete_horizon_as_well() -> None:
    """Its distance from the horizon needs more than 64 bits, and a client may send it: compaction must go on."""
    data = bytes(build_batch([(-(1 << 63), b"k", None, ())]))
    header = read_header(data)
    _, rebuilt = packed(*filtered(header, data[61:], list(scan(data[61:], header)), 1_700_000_000_000))
    [record] = decode_records(rebuilt, 0, read_header(rebuilt))
    assert record.timestamp_ms == -(1 << 63)


def test_bytes_that_no_text_codec_reads_stay_as_they_are() -> None:
    """A header key that is not UTF-8 would be changed by decoding and encoding it again."""
    data = bytearray(batch())
    at = bytes(data).index(b"\x02h")
    data[at + 1] = 0xFF
    header = read_header(data)
    body = unpack_records(data, 0, header)
    _, rebuilt = packed(*filtered(header, body, [list(scan(body, header))[1]]))
    assert b"\x02\xff" in bytes(rebuilt)


def test_an_emptied_batch_keeps_its_producer_and_a_vacated_one_does_not() -> None:
    """L6: both keep their span of offsets and their timestamp; an empty batch is never compressed."""
    header = read_header(batch())
    _, empty = emptied(header._replace(attributes=header.attributes | 4))
    after = read_header(empty)
    assert (after.base_offset, after.last_offset, after.max_timestamp, after.record_count) == (50, 53, 5_000_000, 0)
    assert (after.producer_id, after.producer_epoch, after.base_sequence) == (7, 2, 9)
    assert (after.is_transactional, after.compression, decode_records(empty, 0, after)) == (True, 0, [])
    _, nobody = vacated(header)
    after = read_header(nobody)
    assert (after.base_offset, after.last_offset, after.record_count) == (50, 53, 0)
    assert (after.producer_id, after.producer_epoch, after.base_sequence, after.is_transactional) == (-1, -1, -1, False)
    assert check_crc(nobody, 0, after)


@pytest.mark.parametrize("cut", range(1, 40))
def test_records_that_end_early_or_late_are_refused(cut: int) -> None:
    data = batch()
    header = read_header(data)
    body = bytes(unpack_records(data, 0, header))
    with pytest.raises(CorruptBatch):
        list(scan(body[:-cut], header))
    with pytest.raises(CorruptBatch):
        list(scan(body + bytes(cut), header))
