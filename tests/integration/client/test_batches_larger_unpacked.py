"""Batches that are small on the wire and large after decompression: a legal one is read, and one above a limit named.

Kafka bounds only the compressed size of a batch (`message.max.bytes`): `DefaultRecordBatch.streamingIterator` and
`LogValidator` decompress without a limit.
"""

import time
from pathlib import Path
from typing import Any

import pytest

import fencepost
from fencepost import TopicPartition
from fencepost.cli.log.reading import Batch, Segment
from fencepost.client import BatchTooLargeError
from fencepost.protocol.batch_header import iter_headers
from fencepost.protocol.compression import Compression
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import build_batch
from tests.kit.broker_process import BrokerProcess
from tests.kit.command_line import verify
from tests.kit.waiting import until
from tests.kit.wire import Wire, batch_of, records_in

NOW_MS = int(time.time() * 1000)
VALUE = b'{"status":"ok","n":1234567890}' * 12_000
COUNT = 60
PACKED = {
    codec: bytes(build_batch([(NOW_MS, b"k%d" % n, VALUE, ()) for n in range(COUNT)], compression=codec))
    for codec in (Compression.GZIP, Compression.LZ4)
}
"""60 records, 21 MB after decompression: what a producer with large batches sends."""


def write(broker: BrokerProcess, topic: str) -> None:
    """The large batch, and a small one behind it."""
    with Wire(broker.connect()) as wire:
        wire.create_topic(topic)
        for batch in (*PACKED.values(), batch_of(b"after")):
            assert wire.produce(topic, batch).error_code == ErrorCode.NONE


async def offsets_by(consumer: fencepost.Consumer, way: str, count: int) -> list[int]:
    found: list[int] = []
    if way == "records":
        async for record in consumer:
            found.append(record.offset)
            if len(found) == count:
                break
    elif way == "arrow":
        async for table in consumer.arrow():
            found += table.column("offset").to_pylist()
            if len(found) >= count:
                break
    elif way == "transactions":
        async for unit in consumer.transactions():
            found += [record.offset for record in unit]
            if len(found) >= count:
                break
    else:
        async for batch in consumer.read_to_end():
            found += [record.offset for record in batch]
    return found


@pytest.mark.parametrize("way", ["batches", "records", "arrow", "transactions"])
async def test_a_legal_batch_of_21_mb_in_53_kb_is_read(broker_of_module: BrokerProcess, way: str) -> None:
    """The client ended at its offset: "more than 16777216 bytes in 53207 (CORRUPT_MESSAGE)"."""
    topic = f"read-{way}"
    write(broker_of_module, topic)
    count = 2 * COUNT + 1
    async with fencepost.Client(broker_of_module.address) as kafka, kafka.consumer(topic) as consumer:
        assert await offsets_by(consumer, way, count) == list(range(count))


@pytest.mark.parametrize("way", ["batches", "records", "arrow", "transactions"])
async def test_a_batch_above_the_limit_of_a_consumer_names_the_limit(broker_of_module: BrokerProcess, way: str) -> None:
    """It is not damaged: a consumer with a higher limit reads it, and `seek` skips it."""
    topic = f"limit-{way}"
    write(broker_of_module, topic)
    end = 2 * COUNT
    async with (
        fencepost.Client(broker_of_module.address) as kafka,
        kafka.consumer(topic, max_decompressed_bytes=1 << 20) as consumer,
    ):
        for _ in range(1 if way == "transactions" else 2):
            with pytest.raises(BatchTooLargeError, match=r"more than 1048576 bytes\. Raise max_decompr") as told:
                await offsets_by(consumer, way, end + 1)
        assert (told.value.position, told.value.code) == (0, None)
        consumer.seek(TopicPartition(topic, 0), end)
        assert await offsets_by(consumer, way, 1) == [end]


async def test_a_batch_of_many_records_is_given_in_pieces_and_a_seek_into_it_is_exact(
    broker_of_module: BrokerProcess,
) -> None:
    topic, count = "pieces", 12_345
    with Wire(broker_of_module.connect()) as wire:
        wire.create_topic(topic)
        records = [(NOW_MS, None, b"%d" % n, ()) for n in range(count)]
        assert wire.produce(topic, build_batch(records, compression=Compression.ZSTD)).error_code == ErrorCode.NONE
        assert wire.produce(topic, batch_of(b"after")).error_code == ErrorCode.NONE
    where = TopicPartition(topic, 0)
    async with fencepost.Client(broker_of_module.address) as kafka, kafka.consumer(topic) as consumer:
        assert await offsets_by(consumer, "batches", 0) == list(range(count + 1))
        consumer.seek(where, 4_998)
        assert await offsets_by(consumer, "records", 10) == list(range(4_998, 5_008))
        batch = await anext(consumer.batches(100))
        assert [record.offset for record in batch] == list(range(5_008, 5_108))
        table = await anext(aiter(consumer.arrow()))
        assert table.column("offset").to_pylist() == list(range(5_108, count + 1))[: table.num_rows]
        assert consumer.lag()[where] == count + 1 - 5_108 - table.num_rows


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
def test_a_compacted_topic_takes_80_000_records_in_a_batch(broker_of_module: BrokerProcess, codec: Compression) -> None:
    """librdkafka lost 80,000 records to MSG_SIZE_TOO_LARGE that Kafka takes."""
    topic = f"many-{codec.name.lower()}"
    batch = build_batch([(NOW_MS, b"%d" % n, b"v", ()) for n in range(80_000)], compression=codec)
    with Wire(broker_of_module.connect()) as wire:
        wire.create_topic(topic, cleanup_policy="compact", max_message_bytes="20000000")
        answer = wire.produce(topic, batch)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
        assert wire.produce(topic, batch).base_offset == 80_000


def test_a_legal_large_batch_is_checked_converted_and_compacted(tmp_path: Path) -> None:
    """Each of these places unpacks it: a compacted topic, `compression.type`, a bound on the past, the cleaner."""
    settings = {"log.cleaner.backoff.ms": "100", "durability": "os"}
    with (
        BrokerProcess(tmp_path / "work", data_dir=tmp_path / "data", settings=settings) as broker,
        Wire(broker.connect()) as wire,
    ):
        wire.create_topic("bounded", message_timestamp_before_max_ms="3600000")
        wire.create_topic("converted", compression_type="zstd")
        wire.create_topic(
            "cleaned", cleanup_policy="compact", internal_segment_bytes="60000", min_cleanable_dirty_ratio="0.01"
        )
        for topic in ("bounded", "converted", "cleaned", "cleaned", "cleaned"):
            answer = wire.produce(topic, PACKED[Compression.GZIP])
            assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None), topic
        assert [record.value for record in records_in(wire.fetch("converted"))] == [VALUE] * COUNT

        fetched = until(lambda: wire.fetch("cleaned"), lambda answer: first_offset(answer) == COUNT)
        kept = records_in(fetched)
        assert [record.offset for record in kept] == list(range(COUNT, 3 * COUNT))
        assert [(record.key, record.value) for record in kept[:COUNT]] == [(b"k%d" % n, VALUE) for n in range(COUNT)]

        assert broker.stop() == 0
    report = verify(tmp_path / "data")
    assert (report.returncode, "cannot be read" in report.stdout) == (0, False), report.stdout
    [dumped] = [path for path in sorted((tmp_path / "data" / "bounded-0").glob("*.log")) if path.stat().st_size]
    with Segment(dumped) as segment:  # what `fencepost log dump --records` reads with
        [batch] = [found for found in segment.batches() if isinstance(found, Batch)]
        assert [record.value for record in segment.records(batch)] == [VALUE] * COUNT


def first_offset(answer: Any) -> int:
    """The offset of the first batch with records in a fetch."""
    return next(header.base_offset for _, header in iter_headers(answer.records) if header.record_count)
