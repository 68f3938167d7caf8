"""Record batches against hypothesis and against the record code of kafka-python and aiokafka."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.protocol.batch_header import CorruptBatch, UnreadableBatch, check_crc, iter_headers, read_header
from fencepost.protocol.columns import iter_columns
from fencepost.protocol.compression import Compression
from fencepost.protocol.record_batch import build_batch, build_own_batch
from fencepost.protocol.records import NewRecord, Record, decode_records
from fencepost.protocol.sequence import MAX_SEQUENCE, advance, is_next, last_of
from tests.kit.examples import examples
from tests.kit.record_code import record_code  # noqa: F401

TIMES = st.integers(min_value=0, max_value=2**42)
CONTENT = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(max_size=20), CONTENT), max_size=4).map(tuple)
RECORDS: st.SearchStrategy[list[NewRecord]] = st.lists(
    st.tuples(TIMES, CONTENT, CONTENT, HEADERS), min_size=1, max_size=40
)
CODECS = st.sampled_from(list(Compression))
PRODUCERS = st.tuples(st.integers(-1, 2**63 - 1), st.integers(-1, 2**15 - 1), st.integers(-1, 2**31 - 1), st.booleans())


def as_records(records: list[NewRecord], base_offset: int) -> list[Record]:
    return [Record(base_offset + i, time, key, value, tuple(h)) for i, (time, key, value, h) in enumerate(records)]


@given(RECORDS, CODECS, st.integers(0, 2**62), PRODUCERS, st.none() | TIMES)
def test_what_was_built_is_read(
    records: list[NewRecord], codec: Compression, base: int, producer: tuple[int, int, int, bool], stamp: int | None
) -> None:
    producer_id, epoch, sequence, transactional = producer
    batch = build_batch(
        records,
        base_offset=base,
        compression=codec,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
        log_append_time_ms=stamp,
    )
    header = read_header(batch)
    assert check_crc(batch, 0, header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (producer_id, epoch, sequence)
    assert header.is_transactional == transactional
    expected = [r if stamp is None else r._replace(timestamp_ms=stamp) for r in as_records(records, base)]
    assert decode_records(batch, 0, header) == expected
    assert header.max_timestamp == max(record.timestamp_ms for record in expected)


@given(st.lists(st.tuples(RECORDS, CODECS), min_size=1, max_size=5), st.integers(0, 60), st.integers(0, 200))
@settings(max_examples=examples(50))
def test_columns_equal_records(parts: list[tuple[list[NewRecord], Compression]], first: int, stop: int) -> None:
    buffer, base = b"", 0
    for records, codec in parts:
        buffer += build_batch(records, base_offset=base, compression=codec)
        base += len(records)
    expected = [r for at, header in iter_headers(buffer) for r in decode_records(buffer, at, header)]
    found: list[Record] = []
    for columns in iter_columns(buffer, iter_headers(buffer), first_offset=first, stop_offset=stop):
        headers = [tuple((h["key"], h["value"]) for h in row or ()) for row in columns.headers.to_pylist()]
        times = columns.timestamp_ms.tolist()
        rows = zip(
            columns.offset.tolist(), times, columns.key.to_pylist(), columns.value.to_pylist(), headers, strict=True
        )
        found += [Record(*row) for row in rows]
    assert found == [record for record in expected if first <= record.offset < stop]


@given(RECORDS, CODECS, st.data())
@settings(max_examples=examples(200))
def test_damage_is_found_and_never_raises_anything_else(
    records: list[NewRecord], codec: Compression, data: st.DataObject
) -> None:
    """Overwritten bytes give CorruptBatch or a failing CRC; with the CRC ignored, decoding still ends in order."""
    batch = build_batch(records, compression=codec)
    intact = bytes(batch)
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(0, len(batch) - 1))] = data.draw(st.integers(0, 255))
    try:
        header = read_header(batch)
    except CorruptBatch:
        return
    if batch[21:] != intact[21:] or batch[17:21] != intact[17:21]:
        assert not check_crc(batch, 0, header)
    outcomes: list[int | None] = []
    for count in (count_by_records, count_by_columns):
        try:
            outcomes.append(count(bytes(batch)))
        except UnreadableBatch:
            outcomes.append(None)
    if header.base_offset >= 0:
        assert outcomes[0] == outcomes[1]


def count_by_records(batch: bytes) -> int:
    return len(decode_records(batch, 0, read_header(batch), max_bytes=1 << 20))


def count_by_columns(batch: bytes) -> int:
    return sum(len(columns) for columns in iter_columns(batch, [(0, read_header(batch))], max_bytes=1 << 20))


@given(st.binary(max_size=300))
def test_noise_is_corrupt_or_empty(noise: bytes) -> None:
    with pytest.raises(CorruptBatch):
        read_header(noise)
    try:
        assert list(iter_headers(noise)) == []
    except CorruptBatch:
        pass


@given(st.integers(0, MAX_SEQUENCE), st.integers(1, 2**31 - 1))
def test_the_sequence_after_a_batch_is_next_and_only_that_p2(base: int, count: int) -> None:
    last = last_of(base, count)
    assert 0 <= last <= MAX_SEQUENCE
    assert is_next(last, advance(base, count))
    assert not is_next(last, advance(base, count + 1))


def outsiders() -> list[Any]:
    """The record modules of other Python clients; aiokafka has one in C and one in Python."""
    aiokafka = pytest.importorskip("aiokafka.record.default_records")
    kafka_python = pytest.importorskip("kafka.record.default_records")
    return [
        pytest.param(kafka_python.DefaultRecordBatchBuilder, kafka_python.DefaultRecordBatch, id="kafka-python"),
        pytest.param(aiokafka.DefaultRecordBatchBuilder, aiokafka.DefaultRecordBatch, id="aiokafka"),
        pytest.param(aiokafka._DefaultRecordBatchBuilderPy, aiokafka._DefaultRecordBatchPy, id="aiokafka-pure"),
    ]


def codecs_of(module: Callable[..., Any]) -> list[Compression]:
    """kafka-python brings gzip only and takes the others from packages that are not needed here."""
    return [Compression.NONE, Compression.GZIP] if module.__module__.startswith("kafka.") else list(Compression)


@pytest.mark.parametrize(("builder", "reader"), outsiders())
@given(records=RECORDS, sequence=st.integers(0, MAX_SEQUENCE), data=st.data())
@settings(max_examples=examples(60))
def test_outsiders_batches_are_read_here(
    builder: Any, reader: Any, records: list[NewRecord], sequence: int, data: st.DataObject
) -> None:
    codec = data.draw(st.sampled_from(codecs_of(builder)))
    writer = builder(
        magic=2, compression_type=int(codec), is_transactional=1, producer_id=9, producer_epoch=3,
        base_sequence=sequence, batch_size=1 << 20,
    )  # fmt: skip
    for offset, (time, key, value, headers) in enumerate(records):
        assert writer.append(offset, timestamp=time, key=key, value=value, headers=list(headers)) is not None
    batch = bytes(writer.build())
    header = read_header(batch)
    assert check_crc(batch, 0, header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 3, sequence)
    assert (header.is_transactional, header.is_control, header.size_bytes) == (True, False, len(batch))
    assert decode_records(batch, 0, header) == as_records(records, 0)


@pytest.mark.parametrize(("builder", "reader"), outsiders())
@given(records=RECORDS, base=st.integers(0, 2**62), data=st.data())
@settings(max_examples=examples(60))
def test_batches_built_here_are_read_by_outsiders(
    builder: Any, reader: Any, records: list[NewRecord], base: int, data: st.DataObject
) -> None:
    codec = data.draw(st.sampled_from(codecs_of(builder)))
    batch = build_batch(records, base_offset=base, compression=codec, producer_id=9, producer_epoch=3, base_sequence=4)
    theirs = reader(bytes(batch))
    assert theirs.validate_crc()
    assert (theirs.base_offset, theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (base, 9, 3, 4)
    found = [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs]
    assert found == as_records(records, base)


keys_and_values = st.tuples(st.none() | st.binary(max_size=300), st.none() | st.binary(max_size=300))


@given(st.integers(0, 2**62), st.lists(keys_and_values, min_size=1, max_size=5), st.booleans())
def test_a_batch_of_the_brokers_own_is_the_one_that_the_general_builder_makes(
    timestamp_ms: int, records: list[tuple[bytes | None, bytes | None]], transactional: bool
) -> None:
    """Row T14 rests on it: the records of `__transaction_state` are written so."""
    batch, header = build_own_batch(timestamp_ms, records, producer_id=7, producer_epoch=2, transactional=transactional)
    general = [(timestamp_ms, key, value, ()) for key, value in records]
    assert batch == build_batch(general, producer_id=7, producer_epoch=2, transactional=transactional)
    assert header == read_header(batch)._replace(crc=0)
