"""`Consumer.arrow`: whole answers become columns, and what `batches` would give is what they hold (I2, L9)."""

import sys
import threading
from typing import Any

import pyarrow as pa
import pytest
import trio

import fencepost
from fencepost.client.consumer import arrow, reader
from fencepost.client.consumer.read_errors import CorruptRecordsError
from fencepost.protocol.compression import Compression
from fencepost.protocol.record_batch import build_batch
from fencepost.protocol.records import Record
from tests.kit.fetch_broker import ScriptedCluster
from tests.unit.client.reading_kit import T0, Start, read, values

FILLER = b"".join(b"%08d" % number for number in range(20_000))


async def tables(consumer: fencepost.Consumer[Any, Any], count: int, **options: Any) -> list[pa.RecordBatch]:
    found: list[pa.RecordBatch] = []
    with trio.fail_after(100):
        async for batch in consumer.arrow(**options):
            found.append(batch)
            if sum(entry.num_rows for entry in found) >= count:
                return found
    raise AssertionError


@pytest.mark.parametrize("missing", ["numpy", "pyarrow"])
async def test_without_pyarrow_or_numpy_it_says_what_to_install(
    start: Start, cluster: ScriptedCluster, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await start(cluster)
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, "fencepost.client.consumer.arrow")
    async with fencepost.Client(broker.address) as kafka, kafka.consumer("t") as consumer:
        with pytest.raises(
            ImportError, match=rf"{missing} is not installed here\. Install both with: .*'fencepost\[arrow\]'"
        ):
            consumer.arrow()


async def test_the_columns_and_their_types(start: Start, cluster: ScriptedCluster) -> None:
    broker = await start(cluster)
    records = [
        Record(0, 1_000, b"k", b"v", (("h", b"1"), ("h", None))),
        Record(1, -1, None, None, ()),
        Record(4, 2_000, b"", b"\xff", ()),
    ]
    cluster.append(0, build_batch(records, base_offset=0))
    cluster.append(0, build_batch([(5, b"k", b"v", ())], base_offset=5, log_append_time_ms=9_000))
    async with fencepost.Client(broker.address) as kafka, kafka.consumer("t") as consumer:
        table = pa.Table.from_batches(await tables(consumer, 4))
        assert table.schema == arrow.SCHEMA
        plain = table.set_column(3, "timestamp", table["timestamp"].cast("int64")).to_pydict()
        assert plain == {
            "topic": ["t"] * 4,
            "partition": [0] * 4,
            "offset": [0, 1, 4, 5],
            "timestamp": [1_000, None, 2_000, 9_000],
            "timestamp_type": [0, 0, 0, 1],
            "key": [b"k", None, b"", b"k"],
            "value": [b"v", None, b"\xff", b"v"],
            "headers": [[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], None, None, None],
        }
        assert consumer.lag() == {T0: 0}
        consumer.seek_to_beginning()
        some = await tables(consumer, 4, columns=["offset", "value"])
        assert some[0].schema.names == ["offset", "value"]
        with pytest.raises(ValueError, match="valu"):
            consumer.arrow(columns=["valu"])


async def test_they_hold_what_batches_give(start: Start) -> None:
    """Aborted transactions, every codec, holes; begun in the middle of a batch, and mixed with `batches`."""
    cluster = ScriptedCluster(partitions=2)
    broker = await start(cluster)
    for number in range(2):
        for codec in Compression:
            cluster.write(number, [b"x" * size for size in range(0, 2_000, 97)], compression=codec)
            cluster.write_in_transaction(number, values(0, 5), 7, commit=codec is Compression.LZ4)
    async with fencepost.Client(broker.address) as kafka, kafka.consumer("t") as consumer:
        expected = 2 * (5 * 21 + 5)
        wanted = sorted(await read(consumer, expected))
        consumer.seek_to_beginning()
        found = await tables(consumer, expected)
        assert sorted(places(found)) == wanted
        consumer.seek_to_beginning()
        begun = await read(consumer, 9)
        rest = await tables(consumer, expected - len(begun))
        assert sorted([*begun, *places(rest)]) == wanted
        consumer.seek_to_beginning()
        pieces = await tables(consumer, expected, max_bytes=1)
        assert len(pieces) > len(found)
        assert sorted(places(pieces)) == wanted


def places(batches: list[pa.RecordBatch]) -> list[tuple[int, int]]:
    return [(row["partition"], row["offset"]) for batch in batches for row in batch.to_pylist()]


async def test_what_stands_before_damage_is_given_first(start: Start, cluster: ScriptedCluster) -> None:
    broker = await start(cluster)
    cluster.write(0, values(0, 3))
    broken = build_batch([(0, None, b"x" * 50, ())] * 2, base_offset=3)
    broken[61] = 0x7F
    cluster.append(0, broken)
    cluster.write(0, values(5, 2))
    async with fencepost.Client(broker.address) as kafka, kafka.consumer("t", check_crcs=False) as consumer:
        assert places(await tables(consumer, 3)) == [(0, 0), (0, 1), (0, 2)]
        for _ in range(2):
            with pytest.raises(CorruptRecordsError) as told:
                await tables(consumer, 1)
            assert told.value.position == 3
        consumer.seek(T0, 5)
        assert places(await tables(consumer, 2)) == [(0, 5), (0, 6)]


@pytest.mark.parametrize("way", ["batches", "records", "arrow"])
async def test_large_batches_are_unpacked_in_other_threads(
    start: Start, cluster: ScriptedCluster, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Small ones are not: the way there and back would cost more. The order is kept."""
    broker = await start(cluster)
    for _ in range(3):
        cluster.write(0, [FILLER, b"large"], compression=Compression.LZ4)
        cluster.write(0, [b"small"] * 3, compression=Compression.LZ4)
    large: list[int] = []
    where = threading.get_ident()
    real = reader.unpack_records

    def unpack(buffer: Any, start: int, header: Any, max_bytes: int) -> Any:
        assert threading.get_ident() != where
        large.append(header.base_offset)
        return real(buffer, start, header, max_bytes)

    monkeypatch.setattr(reader, "unpack_records", unpack)
    used: list[int] = []
    build = arrow.iter_columns

    def columns(*given: Any, **options: Any) -> Any:
        used.append(threading.get_ident())
        return build(*given, **options)

    monkeypatch.setattr(arrow, "iter_columns", columns)
    async with fencepost.Client(broker.address) as kafka, kafka.consumer("t") as consumer:
        if way == "arrow":
            assert places(await tables(consumer, 15)) == [(0, offset) for offset in range(15)]
            assert set(used) - {where}
        elif way == "batches":
            assert await read(consumer, 15) == [(0, offset) for offset in range(15)]
        else:
            got = []
            with trio.fail_after(100):
                async for record in consumer:
                    got.append(record.offset)
                    if len(got) == 15:
                        break
            assert got == list(range(15))
    assert sorted(large) == ([] if way == "arrow" else [0, 5, 10])
