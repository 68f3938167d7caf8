"""Rows to record batches: Java's partitions, order, sizes, and rows that cannot be written."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("numpy")
pytest.importorskip("pyspark")

import pyarrow as pa

from fencepost.client.config import ProducerConfig
from fencepost.client.config_parsing import parse
from fencepost.client.core.partitioner import murmur2, partition_for_key
from fencepost.protocol.batch_header import check_crc, read_header
from fencepost.protocol.records import Record, decode_records
from fencepost.spark_connector.option_values import OptionError
from fencepost.spark_connector.sink.encode import Encoded, Encoder, SinkError, sink_columns
from fencepost.spark_connector.sink.encode_keys import hashes, partitions_of_keys

JAVA = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536, b"abc": 479470107}
"""From Kafka's own UtilsTest.testMurmur2."""


def encoder(columns: str, topic: str | None = "t", partitions: int = 3, start: int = 0, **options: Any) -> Encoder:
    config = parse(ProducerConfig, {"batch_size": 10_000, **options})
    positions = {name: position for position, name in enumerate(columns.split())}
    return Encoder(positions, topic, config, lambda _: partitions, lambda: 1_700_000_000_000, start)


def encoded(made: Encoder, *batches: Any) -> list[Encoded]:
    return [part for batch in batches for part in made.add(batch)] + list(made.finish())


def records_of(parts: list[Encoded]) -> Iterator[tuple[str, int, Record]]:
    for part in parts:
        header = read_header(part.data)
        assert header.size_bytes == len(part.data)
        assert check_crc(part.data, 0, header)
        assert header.record_count == part.records
        for record in decode_records(part.data, 0, header):
            yield part.topic, part.partition, record


def frame(**columns: Any) -> Any:
    return pa.RecordBatch.from_pydict(columns)


def test_the_hash_of_a_column_is_javas_murmur2() -> None:
    column = pa.array(list(JAVA), pa.binary())
    assert hashes(column).astype("int32").tolist() == list(JAVA.values())


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_every_key_goes_where_the_client_would_send_it(kind: Any) -> None:
    seeded = random.Random(7)
    keys = [seeded.randbytes(length) for length in [*range(70), 255, 256, 257, 1000] for _ in range(3)] + [None]
    seeded.shuffle(keys)
    column = pa.array([b"before", *keys], kind).slice(1)
    found = hashes(column)
    for key, number in zip(keys, found.tolist(), strict=True):
        assert key is None or number == murmur2(key)
    for key, partition in zip(keys, partitions_of_keys(column, 7).tolist(), strict=True):
        assert key is None or partition == partition_for_key(key, 7)
    assert hashes(pa.array([], kind)).tolist() == []


def test_rows_keep_their_order_in_each_partition_and_bring_everything_along() -> None:
    headers = [[("h", b"x"), ("h", None)] if n % 2 else None for n in range(400)]
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    rows = {
        "key": pa.array([f"k{n % 11}" if n % 5 else None for n in range(400)]),
        "value": pa.array([b"%d" % n if n % 7 else None for n in range(400)], pa.binary()),
        "headers": pa.array([None if h is None else [{"key": k, "value": v} for k, v in h] for h in headers], kind),
    }
    made = encoder("key value headers", batch_size=1000)
    whole = frame(**rows)
    found = list(records_of(encoded(made, whole.slice(0, 150), whole.slice(150))))
    assert made.rows == len(found) == 400
    by_key: dict[bytes | None, list[bytes | None]] = {}
    for topic, partition, record in found:
        assert topic == "t"
        assert record.timestamp_ms == 1_700_000_000_000
        if record.key is not None:
            assert partition == partition_for_key(record.key, 3)
        by_key.setdefault(record.key, []).append(record.value)
        if record.value is not None:
            number = int(record.value)
            assert list(record.headers) == (headers[number] or [])
    for key, values in by_key.items():
        wanted = [b"%d" % n if n % 7 else None for n in range(400) if key == (b"k%d" % (n % 11) if n % 5 else None)]
        if key is None:  # these went to several partitions
            assert sorted(value or b"" for value in values) == sorted(value or b"" for value in wanted)
        else:
            assert values == wanted


def test_rows_without_a_key_go_in_runs_of_a_batch_from_one_partition_to_the_next() -> None:
    values = pa.array([b"%02d" % n * 42 for n in range(60)], pa.binary())  # 100 bytes each, and batches of 1000
    parts = encoded(encoder("value", start=2, batch_size=1256), frame(value=values))
    placed = {int(record.value[:2]): partition for _, partition, record in records_of(parts)}
    assert [placed[n] for n in range(60)] == ([2] * 10 + [0] * 10 + [1] * 10) * 2
    assert sum(part.records for part in parts) == 60
    counts = {p: sum(part.records for part in parts if part.partition == p) for p in range(3)}
    assert counts == {0: 20, 1: 20, 2: 20}
    keyed = frame(key=["same"] * 60, value=values)
    ignoring = encoded(encoder("key value", batch_size=1256, partitioner_ignore_keys=True), keyed)
    assert {part.partition for part in ignoring} == {0, 1, 2}


def test_batches_are_filled_up_to_their_size_and_a_larger_record_goes_alone() -> None:
    values = pa.array([b"x" * 2000] * 10 + [b"y" * 20_000] + [b"z"], pa.binary())
    parts = encoded(encoder("value", partitions=1, batch_size=5000), frame(value=values))
    assert [part.records for part in parts] == [2, 2, 2, 2, 2, 1, 1]
    assert all(len(part.data) < 5000 for part in parts if part.records == 2)
    packed = encoded(encoder("value", partitions=1, compression="zstd"), frame(value=values))
    assert sum(len(part.data) for part in packed) < 2000
    assert [record.value for _, _, record in records_of(packed)] == values.to_pylist()


def test_topic_and_partition_columns_say_where_a_row_goes() -> None:
    rows = frame(
        topic=["a", "b", "a", "b"],
        partition=pa.array([1, None, 0, 2], pa.int32()),
        key=[None, "k", "k", None],
        value=["0", "1", "2", "3"],
    )
    parts = encoded(encoder("topic partition key value", topic=None), rows)
    found = {(topic, partition, record.value) for topic, partition, record in records_of(parts)}
    assert found == {("a", 1, b"0"), ("b", partition_for_key(b"k", 3), b"1"), ("a", 0, b"2"), ("b", 2, b"3")}
    one = encoded(encoder("topic value", topic=None), frame(topic=["a", "a"], value=["0", "1"]))
    assert {part.topic for part in one} == {"a"}


@pytest.mark.parametrize(
    ("columns", "rows", "reason"),
    [
        ("topic value", {"topic": ["a", None], "value": ["0", "1"]}, "row 2 of task 0 has no topic"),
        (
            "partition value",
            {"partition": pa.array([3], pa.int32()), "value": ["0"]},
            "row 1 of task 0 has partition 3, but topic t has 3 partitions: create the topic with more, or drop",
        ),
        (
            "partition value",
            {"partition": pa.array([-1], pa.int32()), "value": ["0"]},
            "row 1 of task 0 has partition -1",
        ),
        (
            "key value",
            {"key": ["a", "b"], "value": ["", "x" * 5000]},
            r"row 2 of task 0 \(key b'b'\) is a record of \d+ bytes .* larger than kafka\.max\.request\.size \(4096\)",
        ),
        (
            "topic value",
            {"topic": ["a", "b", "a", "b"], "value": ["", "", "", "x" * 5000]},
            "row 4 of task 0 is a record of .* bytes for topic b",
        ),
        (
            "value headers",
            {"value": ["x"], "headers": [[{"key": None, "value": b""}]]},
            "row 1 of task 0 has a header without a key",
        ),
        (
            "value timestamp",
            {"value": ["x", "x"], "timestamp": pa.array([0, -1], pa.timestamp("us", "UTC"))},
            "row 2 of task 0 has a timestamp before 1970",
        ),
    ],
)
def test_rows_that_can_not_be_written_say_why(columns: str, rows: dict[str, Any], reason: str) -> None:
    made = encoder(columns, topic=None if "topic" in columns else "t", max_request_size=4096)
    with pytest.raises(SinkError, match=reason):
        encoded(made, frame(**rows))


def test_the_column_timestamp_is_the_records_time_and_null_is_now() -> None:
    """A record of a source without a time has -1 there, and again none."""
    micros = pa.array([1_000_500, None, 2_000_000, -1000], pa.timestamp("us", "UTC"))
    rows = frame(timestamp=micros, partition=pa.array([1, 0, 0, 0], pa.int32()), value=["a", "b", "c", "d"])
    parts = encoded(encoder("timestamp partition value"), rows)
    found = {record.value: record.timestamp_ms for _, _, record in records_of(parts)}
    assert found == {b"a": 1000, b"b": 1_700_000_000_000, b"c": 2000, b"d": -1}


def test_an_empty_frame_makes_nothing() -> None:
    assert encoded(encoder("value"), frame(value=pa.array([], pa.binary()))) == []


def test_columns_are_found_by_name_and_checked_by_type() -> None:
    schema = [("Key", "string"), ("value", "binary"), ("offset", "bigint"), ("topic", "string"), ("partition", "int")]
    assert sink_columns(schema, None) == {"key": 0, "value": 1, "topic": 3, "partition": 4}
    assert "topic" not in sink_columns(schema, "fixed"), "the option counts more, as with Spark's Kafka sink"
    for wrong, reason in [
        ([("key", "string")], "needs a column named value"),
        ([("value", "int")], "column value is int, but the sink needs string or binary"),
        ([("value", "string"), ("headers", "map<string,binary>")], "column headers is map<string,binary>"),
        ([("value", "string"), ("VALUE", "string")], "two columns are named value"),
        ([("value", "string"), ("partition", "bigint")], "column partition is bigint"),
    ]:
        with pytest.raises(OptionError, match=reason):
            sink_columns(wrong, "t")
    with pytest.raises(OptionError, match="needs a topic"):
        sink_columns([("value", "string")], None)
