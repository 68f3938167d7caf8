"""Records inside a batch: their bytes, their limits, and damage at every place."""

import struct

import pytest

from fencepost.protocol.batch_header import (
    CorruptBatch,
    OversizedBatch,
    UnreadableBatch,
    check_crc,
    iter_headers,
    read_header,
)
from fencepost.protocol.compression import Compression
from fencepost.protocol.record_batch import build_batch
from fencepost.protocol.records import NewRecord, Record, decode_records, decode_run, encode_records
from tests.kit.record_code import record_code  # noqa: F401

RECORDS: list[NewRecord] = [
    (1_000, b"key", b"value", ()),
    (900, None, b"x" * 100, (("trace", b"abc"), ("empty", b""), ("null", None))),
    (1_000 + 2**40, b"", None, ()),
    (-1, b"k" * 70, b"", (("ünï", b"\xff"),)),
]


def batch_of(body: bytes, count: int = 1, compression: int = 0) -> bytes:
    """A batch with a right header and CRC around any bytes."""
    batch = build_batch([(0, None, None, ())] * count)[:61] + body
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">h", batch, 21, compression)
    return bytes(batch)


def decode(batch: bytes) -> list[Record]:
    return decode_records(batch, 0, read_header(batch))


def test_nulls_headers_and_falling_timestamps_come_back() -> None:
    batch = build_batch(RECORDS, base_offset=5)
    expected = [Record(5 + i, r[0], r[1], r[2], tuple(r[3])) for i, r in enumerate(RECORDS)]
    assert decode_records(batch, 0, read_header(batch)) == expected


def test_the_bytes_of_a_record_are_those_of_the_format() -> None:
    body, last_delta, max_timestamp = encode_records([(7, b"k", b"vv", (("h", None),)), (4, None, None, ())], 5)
    assert body == b"\x18\x00\x04\x00\x02k\x04vv\x02\x02h\x01" + b"\x0c\x00\x01\x02\x01\x01\x00"
    assert (last_delta, max_timestamp) == (1, 7)


def test_a_batch_of_several_thousand_records_needs_wide_varints_everywhere() -> None:
    records: list[NewRecord] = [
        (i * 1_000_003 - 2**33, b"k" * (i % 200), b"v" * (i * 7 % 40_000), ()) for i in range(9000)
    ]
    batch = build_batch(records)
    assert [tuple(record)[1:4] for record in decode(bytes(batch))] == [record[:3] for record in records]


def test_broken_utf8_in_a_header_key_is_replaced_as_java_does() -> None:
    batch = build_batch([(0, None, None, (("ab", b"1"),))])
    batch[batch.index(b"ab")] = 0xFF
    assert decode(bytes(batch))[0].headers == (("\ufffdb", b"1"),)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x0c",
        b"\x0c\x00\x00\x00\x01\x01",
        b"\x0c\x00\x00\x00\x01\x01\x00\x00",
        b"\x0a\x00\x00\x00\x01\x01\x00",
        b"\x0e\x00\x00\x00\x01\x01\x00",
        b"\x0b\x00\x00\x00\x01\x01\x00",
        b"\x0c\x00\x00\x01\x01\x01\x00",
        b"\x0c\x00\x00\x02\x01\x01\x00",
        b"\x0c\x00\x00\x00\x03\x01\x00",
        b"\x0c\x00\x00\x00\x01\x03\x00",
        b"\x0c\x00\x00\x00\x7e\x01\x00",
        b"\x0c\x00\x00\x00\x01\x7e\x00",
        b"\x0c\x00\x00\x00\x01\x01\x01",
        b"\x0c\x00\x00\x00\x01\x01\x02",
        b"\x0c\x00\x00\x00\x01\x01\x7e",
        b"\x10\x00\x00\x00\x01\x01\x02\x05\x00",
        b"\x10\x00\x00\x00\x01\x01\x02\x01\x01",
        b"\x10\x00\x00\x00\x01\x01\x02\x00\x03",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01" + bytes(20),
        b"\x80" * 1000,
        b"\xfe\xff\xff\xff\x0f" + bytes(20),
    ],
)
def test_lengths_that_do_not_fit_are_corrupt(body: bytes) -> None:
    with pytest.raises(CorruptBatch):
        decode(batch_of(body))


def test_the_error_names_record_batch_and_byte() -> None:
    good, *_ = encode_records([(0, b"a", b"b", ())], 0)
    with pytest.raises(CorruptBatch, match=r"record 1 of 2, batch at offset 0: .*byte 16"):
        decode(batch_of(good + b"\x0c\x00\x00\x02\x03\x01\x00", count=2))


def test_a_count_that_the_bytes_can_not_hold_is_refused_at_once() -> None:
    batch = bytearray(batch_of(b"\x0c\x00\x00\x00\x01\x01\x00"))
    struct.pack_into(">i", batch, 23, 2**31 - 2)
    struct.pack_into(">i", batch, 57, 2**31 - 1)
    with pytest.raises(CorruptBatch, match="cannot fit"):
        decode(bytes(batch))


@pytest.mark.parametrize("codec", list(Compression))
def test_every_cut_is_corrupt(codec: Compression) -> None:
    batch = bytes(build_batch(RECORDS, compression=codec))
    for size in range(len(batch)):
        with pytest.raises(CorruptBatch):
            decode(batch[:size])
        assert list(iter_headers(batch[:size])) == []


@pytest.mark.parametrize("codec", list(Compression))
def test_every_bit_flip_fails_the_header_or_the_crc_and_decodes_or_is_corrupt(codec: Compression) -> None:
    batch = bytes(build_batch(RECORDS, compression=codec, producer_id=4, producer_epoch=0, base_sequence=0))
    for bit in range(len(batch) * 8):
        broken = bytearray(batch)
        broken[bit >> 3] ^= 1 << (bit & 7)
        try:
            header = read_header(broken)
        except CorruptBatch:
            continue
        outside_the_crc = bit >> 3 < 8 or 12 <= bit >> 3 < 16
        assert check_crc(broken, 0, header) == outside_the_crc
        try:
            decode_records(broken, 0, header, max_bytes=1 << 20)
        except UnreadableBatch:
            continue


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec is not Compression.NONE])
def test_a_batch_above_the_limit_of_its_reader_is_oversized_and_not_corrupt(codec: Compression) -> None:
    batch = bytes(build_batch([(0, None, bytes(64 << 20), ())], compression=codec, base_offset=7))
    with pytest.raises(OversizedBatch, match=r"batch at offset 7 .* decompress to more than 1048576 bytes") as caught:
        decode_records(batch, 0, read_header(batch), max_bytes=1 << 20)
    assert not isinstance(caught.value, CorruptBatch)


def test_without_a_limit_a_small_batch_may_decompress_to_any_size() -> None:
    """A producer compresses 64 MB of equal records to a few kB. Java's and C's clients read them without a limit."""
    batch = bytes(build_batch([(0, None, bytes(64 << 20), ())], compression=Compression.ZSTD))
    [record] = decode_records(batch, 0, read_header(batch))
    assert record.value == bytes(64 << 20)


def test_bytes_that_no_codec_made_are_corrupt() -> None:
    for codec in (1, 2, 3, 4):
        with pytest.raises(CorruptBatch):
            decode(batch_of(b"no codec made this", compression=codec))


def test_a_timestamp_delta_beyond_64_bits_can_not_be_written() -> None:
    with pytest.raises(OverflowError):
        encode_records([(2**63, None, None, ())], -(2**63))


@pytest.mark.parametrize(
    ("count", "key", "value"),
    [(1, None, 100), (63, 8, 100), (64, 8, None), (65, None, None), (200, 0, 0), (70, 64, 8192), (8193, None, 3)],
)
def test_records_of_one_shape_come_back(count: int, key: int | None, value: int | None) -> None:
    """Offset deltas, times and lengths of one varint byte and of more."""
    content = [None if size is None else b"c" * size for size in (key, value)]
    for timestamps in ([0], [0, 5, 63], [0, 64, 8_191, 10_000]):
        made: list[NewRecord] = [(1_000 + timestamps[n % len(timestamps)], *content, ()) for n in range(count)]
        assert decode(bytes(build_batch(made, base_offset=7))) == [Record(7 + n, *one) for n, one in enumerate(made)]


@pytest.mark.parametrize("headers", [(), (("h", b"x"),)])
def test_holes_of_compaction_keep_their_offsets(headers: tuple[tuple[str, bytes], ...]) -> None:
    made = [Record(10 + 2 * n, 1_000, None, b"v" * 10, headers) for n in range(20)]
    assert decode(bytes(build_batch(made, base_offset=10))) == made


@pytest.mark.parametrize("count", [8, 80])
def test_a_count_too_small_and_bytes_too_many_or_too_few_are_corrupt(count: int) -> None:
    body = bytes(build_batch([(1_000, None, b"value", ())] * count)[61:])
    for wrong, claimed in (
        (body, count - 1),
        (body + b"\0", count),
        (body[:-1], count),
        (body[: len(body) // 2], count),
    ):
        with pytest.raises(CorruptBatch):
            decode(batch_of(wrong, claimed))


def test_a_run_of_batches_ends_before_what_is_to_be_looked_at_alone() -> None:
    """Compressed, damaged, of another leader epoch, or before the position: `decode_records` says what is with it."""
    buffer, batches, offset = bytearray(), [], 0
    for epoch in (0, 0, 1, 1):
        batch = build_batch([(1_000, None, b"v", ())] * 10, base_offset=offset, leader_epoch=epoch)
        batches.append((len(buffer), read_header(batch)))
        buffer += batch
        offset += 10
    run, count = decode_run(buffer, batches, 0, 1000)
    assert ([record.offset for record in run], count) == (list(range(20)), 2)
    assert decode_run(buffer, batches, 0, 5)[1] == 1
    assert decode_run(buffer, batches, 3, 1000) == ([], 0)
    assert decode_run(buffer, [batches[0], batches[0]], 0, 1000)[1] == 1
    buffer[batches[1][0] + 61] = 255
    assert decode_run(buffer, batches, 0, 1000)[1] == 1
    packed = [(0, batches[0][1]._replace(attributes=1))]
    assert decode_run(buffer, packed, 0, 1000) == ([], 0)
