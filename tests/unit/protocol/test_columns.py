"""Record columns for Spark: equal to the records, cut out exactly, and as safe on damaged bytes."""

import os
import random
import struct
from typing import Any

import pytest

pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")

from fencepost.protocol.batch_header import CorruptBatch, iter_headers  # noqa: E402
from fencepost.protocol.column_types import RecordColumns, headers_type  # noqa: E402
from fencepost.protocol.columns import iter_columns  # noqa: E402
from fencepost.protocol.compression import Compression  # noqa: E402
from fencepost.protocol.record_batch import build_batch  # noqa: E402
from fencepost.protocol.records import NewRecord, Record, decode_records  # noqa: E402
from tests.kit.record_code import record_code  # noqa: E402, F401


def rows(columns: RecordColumns) -> list[Record]:
    headers = [tuple((pair["key"], pair["value"]) for pair in row or ()) for row in columns.headers.to_pylist()]
    parts = (columns.offset.tolist(), columns.timestamp_ms.tolist(), columns.key.to_pylist(), columns.value.to_pylist())
    return [Record(*row) for row in zip(*parts, headers, strict=True)]


def by_records(buffer: bytes) -> list[Record]:
    return [record for at, header in iter_headers(buffer) for record in decode_records(buffer, at, header)]


def by_columns(buffer: Any, **options: Any) -> list[Record]:
    return [row for columns in iter_columns(buffer, iter_headers(buffer), **options) for row in rows(columns)]


def mixed_records(count: int, seed: int = 1) -> list[NewRecord]:
    chance = random.Random(seed)
    out: list[NewRecord] = []
    for index in range(count):
        headers = tuple((f"h{i}", chance.choice([None, b"", b"x" * 90])) for i in range(chance.choice([0, 0, 0, 1, 3])))
        key = chance.choice([None, b"", b"key%d" % index])
        value = chance.choice([None, b"", os.urandom(chance.randrange(300)), bytes(20_000)])
        out.append((chance.randrange(2**41), key, value, headers))
    return out


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("stamp", [None, 123_456])
def test_columns_are_the_records(codec: Compression, stamp: int | None) -> None:
    batches = [
        build_batch(mixed_records(300, seed), base_offset=1000 * seed, compression=codec, log_append_time_ms=stamp)
        for seed in range(4)
    ]
    buffer = b"".join(batches)
    assert by_columns(buffer) == by_records(buffer)
    assert by_columns(memoryview(buffer)) == by_records(buffer)


def test_compressed_and_plain_batches_may_alternate() -> None:
    codecs = [Compression.NONE, Compression.NONE, Compression.LZ4, Compression.ZSTD, Compression.NONE, Compression.GZIP]
    buffer = b"".join(
        build_batch(mixed_records(50, i), base_offset=50 * i, compression=codec) for i, codec in enumerate(codecs)
    )
    assert by_columns(buffer) == by_records(buffer)


def test_long_runs_of_one_size_end_where_the_size_changes() -> None:
    for value in (b"v", b"v" * 100, b"v" * 9_000):
        same: list[NewRecord] = [(1, b"key", value, ())] * 60
        other: list[NewRecord] = [(1, b"key!", value, ())]
        records = same + other + same + other * 20 + same[:3]
        buffer = bytes(build_batch(records, base_offset=7))
        assert by_columns(buffer) == by_records(buffer)


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
def test_every_offset_range_is_cut_out_exactly(codec: Compression) -> None:
    buffer = b"".join(build_batch(mixed_records(5, i), base_offset=10 * i, compression=codec) for i in range(3))
    everything = by_records(buffer)
    for first in range(27):
        for stop in range(first, 27):
            expected = [record for record in everything if first <= record.offset < stop]
            assert by_columns(buffer, first_offset=first, stop_offset=stop) == expected


def test_holes_that_compaction_left_stay_holes() -> None:
    kept = [Record(12, 5, b"a", b"b"), Record(15, 6, b"c", None)]
    empty = build_batch([], base_offset=20, last_offset_delta=9)
    buffer = bytes(build_batch(kept, base_offset=10, last_offset_delta=9) + empty)
    assert by_columns(buffer) == kept
    assert by_columns(bytes(empty)) == []


def test_fields_not_asked_for_are_not_built() -> None:
    buffer = bytes(build_batch([(5, b"k", b"v", (("h", b"x"),))]))
    (columns,) = iter_columns(buffer, iter_headers(buffer), fields=frozenset({"value"}))
    assert (columns.key, columns.headers, columns.value.to_pylist()) == (None, None, [b"v"])
    assert len(columns) == 1


def test_the_types_are_those_spark_expects() -> None:
    buffer = bytes(build_batch([(5, b"k", None, ()), (6, None, b"v", (("h", None),))], log_append_time_ms=9))
    (columns,) = iter_columns(buffer, iter_headers(buffer))
    assert columns.key.type == columns.value.type == pa.binary()
    assert columns.headers.type == headers_type()
    assert columns.headers.to_pylist() == [None, [{"key": "h", "value": None}]]
    assert [str(c.dtype) for c in (columns.offset, columns.timestamp_ms, columns.timestamp_type)] == [
        "int64",
        "int64",
        "int32",
    ]
    assert columns.timestamp_type.tolist() == [1, 1]


@pytest.mark.parametrize("codec", list(Compression))
def test_every_bit_flip_gives_what_the_records_give_or_corrupt_batch(codec: Compression) -> None:
    records: list[NewRecord] = [(1_000, b"key", b"v" * 70, ()), (900, None, None, (("h", b"1"), ("n", None)))] * 2
    batch = bytes(build_batch(records, compression=codec))
    for bit in range(len(batch) * 8):
        broken = bytearray(batch)
        broken[bit >> 3] ^= 1 << (bit & 7)
        try:
            headers = list(iter_headers(broken))
        except CorruptBatch:
            continue
        results: list[Any] = []
        for decode in (by_records, by_columns):
            try:
                results.append(decode(bytes(broken)))
            except CorruptBatch:
                results.append(None)
        if not headers or headers[0][1].base_offset < 0:
            continue
        assert results[0] == results[1], bit


def test_sizes_that_only_fit_another_batch_are_corrupt() -> None:
    first, second = build_batch([(0, None, b"v", ())] * 20), build_batch([(0, None, b"v", ())] * 20, base_offset=20)
    first[61] = 0x20
    buffer = bytes(first + second)
    with pytest.raises(CorruptBatch, match="batch at offset 0"):
        by_columns(buffer)


def test_a_claimed_count_costs_nothing() -> None:
    batch = build_batch([(0, None, None, ())])
    struct.pack_into(">i", batch, 23, 2**31 - 2)
    struct.pack_into(">i", batch, 57, 2**31 - 1)
    with pytest.raises(CorruptBatch, match="cannot fit"):
        by_columns(bytes(batch))
