"""The check of a batch's records before an append: bounds of timestamps, keys, and millions of records in one batch."""

import pytest

from fencepost.protocol.batch_header import HEADER_SIZE, BatchHeader, CorruptBatch, read_header
from fencepost.protocol.record_batch import build_batch
from fencepost.protocol.record_check import CheckedRecords, RecordRules, check_records
from fencepost.protocol.records import decode_in_pieces, decode_records
from fencepost.protocol.varints import LONG_MAX, LONG_MIN, put_signed_varint, wrapped
from tests.kit.record_code import record_code  # noqa: F401


def batch_at(base_timestamp: int, *deltas: int, key: bytes | None = None) -> tuple[BatchHeader, bytes]:
    """A batch whose records have any timestamp deltas: no encoder makes sums beyond 64 bits."""
    body = b""
    for number, delta in enumerate(deltas):
        keyed = b"\x01" if key is None else put_signed_varint(len(key)) + key
        record = b"\0" + put_signed_varint(delta) + put_signed_varint(number) + keyed + b"\x01\0"
        body += put_signed_varint(len(record)) + record
    header = read_header(build_batch([(base_timestamp, None, None, ())] * len(deltas)))
    return header._replace(batch_length=HEADER_SIZE - 12 + len(body), base_timestamp=base_timestamp), body


@pytest.mark.parametrize(("base", "delta"), [(1_700_000_000_000, LONG_MAX), (LONG_MIN, -5), (-1, LONG_MIN), (5, -6)])
def test_a_timestamp_beyond_64_bits_wraps_around_for_every_reader(base: int, delta: int) -> None:
    """L7: in Kafka `DefaultRecord.readFrom` adds the delta to the base timestamp in a Java `long`."""
    header, body = batch_at(base, delta)
    [record] = decode_records(bytes(HEADER_SIZE) + body, 0, header)
    assert record.timestamp_ms == wrapped(base + delta)
    found = check_records(body, header, RecordRules(), 10)
    assert found == CheckedRecords(max(-1, record.timestamp_ms), True, 0, [])


def test_the_wrong_records_are_counted_and_the_first_of_them_listed() -> None:
    header, body = batch_at(100, 0, 50, -101, 51, 52, 53)
    found = check_records(body, header, RecordRules(False, 90, 150), 2)
    assert found == CheckedRecords(153, True, 3, [(3, 151), (4, 152)])
    found = check_records(body, header, RecordRules(True, LONG_MIN - 5, LONG_MAX + 5), 2)
    assert (found.wrong_count, found.wrong) == (6, [(0, None), (1, None)])
    header, body = batch_at(100, 0, key=b"k")
    assert check_records(body, header, RecordRules(True), 2).wrong_count == 0


def test_damage_is_corrupt_and_never_checked_in_part() -> None:
    header, body = batch_at(100, *range(3000))
    for broken in (body[:-1], body + b"\0", body[:5000] + b"\xff" * 9 + body[5009:]):
        with pytest.raises(CorruptBatch):
            check_records(broken, header, RecordRules(), 2)


@pytest.mark.parametrize("count", [1, 999, 1000, 1001, 2500])
def test_the_pieces_of_a_batch_are_its_records(count: int) -> None:
    records = [(5, b"%d" % n, b"v" * (n % 300), ()) for n in range(count)]
    batch = build_batch(records, base_offset=3)
    header = read_header(batch)
    pieces = list(decode_in_pieces(batch[HEADER_SIZE:], header, 1000))
    assert [record for piece in pieces for record in piece] == decode_records(batch, 0, header)
    assert all(len(piece) <= 1000 for piece in pieces)


def test_a_batch_that_ends_early_is_corrupt_in_pieces_too() -> None:
    batch = build_batch([(5, b"%d" % n, b"v", ()) for n in range(2500)])
    header = read_header(batch)
    for size in (100, 11_000, len(batch) - 1):
        with pytest.raises(CorruptBatch):
            list(decode_in_pieces(batch[HEADER_SIZE:size], header, 1000))
