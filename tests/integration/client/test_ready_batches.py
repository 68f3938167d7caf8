"""Transaction.send_batches: batches that a program has made are sent as they are, under the producer's name."""

import pytest

import fencepost
from fencepost import ErrorCode, KafkaError, RecordRejectedError
from fencepost.client.producer.ready_batches import whole_batches
from fencepost.protocol.batch_header import CorruptBatch
from fencepost.protocol.compression import Compression
from fencepost.protocol.record_batch import build_batch
from tests.integration.client.transaction_kit import create, read_all


def batch_of(values: list[bytes], compression: Compression = Compression.NONE) -> bytes:
    return bytes(build_batch([(1_700_000_000_000, b"k", value, ()) for value in values], compression=compression))


async def test_ready_batches_and_records_come_in_the_order_they_were_handed_in(address_of_both: str, name: str) -> None:
    """P2: sequences go on over batches of the program's own and of the producer's; T2: aborted ones are not seen."""
    async with fencepost.Client(address_of_both) as kafka:
        await create(kafka, name)
        async with kafka.transactional_producer(name) as producer:
            for outcome in ("commit", "abort", "commit"):
                try:
                    async with producer.transaction() as txn:
                        two = batch_of([b"1", b"2"]) + batch_of([b"3"], Compression.ZSTD)
                        await txn.send(name, b"0", partition=1)
                        await txn.send_batches(name, 1, two)
                        await txn.send(name, b"4", partition=1)
                        await txn.send_batches(name, 1, batch_of([b"5"], Compression.LZ4))
                        if outcome == "abort":
                            await producer.flush()
                            raise ZeroDivisionError
                except ZeroDivisionError:
                    pass
        assert await read_all(kafka, name) == [b"0", b"1", b"2", b"3", b"4", b"5"] * 2
        async with kafka.consumer(name) as consumer:
            record = await anext(aiter(consumer))
            while record.value != b"3":
                record = await anext(aiter(consumer))
            assert (record.key, record.timestamp_ms) == (b"k", 1_700_000_000_000)


async def test_a_ready_batch_that_the_broker_finds_too_large_is_halved_until_it_fits(address: str, name: str) -> None:
    async with fencepost.Client(address) as kafka:
        async with kafka.admin() as admin:
            await admin.create_topics(name, partitions=1, configs={"max.message.bytes": "2000"})
        values = [b"%04d" % number * 50 for number in range(40)]
        async with kafka.transactional_producer(name) as producer, producer.transaction() as txn:
            await txn.send_batches(name, 0, batch_of(values, Compression.NONE))
            await txn.send(name, b"after", partition=0)
        assert await read_all(kafka, name) == [*values, b"after"]


async def test_more_than_the_buffer_holds_waits_for_room(address: str, name: str) -> None:
    async with fencepost.Client(address) as kafka:
        await create(kafka, name)
        large = batch_of([b"x" * 30_000])
        async with kafka.transactional_producer(name, buffer_memory=70_000) as producer:
            async with producer.transaction() as txn:
                for number in range(20):
                    await txn.send_batches(name, number % 2, large)
            assert producer.metrics().buffer_available_bytes == 70_000
        assert len(await read_all(kafka, name)) == 20


async def test_what_is_no_whole_batch_is_refused_and_the_transaction_goes_on(address: str, name: str) -> None:
    async with fencepost.Client(address) as kafka:
        await create(kafka, name)
        good = batch_of([b"a"])
        wrong_crc = bytearray(good)
        wrong_crc[-1] ^= 1
        async with kafka.transactional_producer(name, max_request_size=2048) as producer:
            async with producer.transaction() as txn:
                for bad, reason in [
                    (wrong_crc, "CRC"),
                    (good[:-1], "follow the last"),
                    (good + b"x", "follow the last"),
                ]:
                    with pytest.raises(CorruptBatch, match=reason):
                        await txn.send_batches(name, 0, bad)
                with pytest.raises(KafkaError, match="max_request_size") as too_large:
                    await txn.send_batches(name, 0, batch_of([b"x" * 3000]))
                assert too_large.value.code is ErrorCode.MESSAGE_TOO_LARGE
                with pytest.raises(KafkaError, match="has 2 partitions"):
                    await txn.send_batches(name, 2, good)
                await txn.send_batches(name, 0, good)
            await create_small(kafka, name + "-small")
            with pytest.raises(RecordRejectedError):  # one record that cannot be halved
                await in_one_transaction(producer, name + "-small", batch_of([b"x" * 1000]))
        assert await read_all(kafka, name) == [b"a"]


async def in_one_transaction(producer: fencepost.TransactionalProducer, topic: str, batch: bytes) -> None:
    async with producer.transaction() as txn:
        await txn.send_batches(topic, 0, batch)


async def create_small(kafka: fencepost.Client, name: str) -> None:
    async with kafka.admin() as admin:
        await admin.create_topics(name, partitions=1, configs={"max.message.bytes": "500"})


def test_control_batches_and_batches_with_holes_are_refused() -> None:
    control = bytes(build_batch([(0, b"k", b"v", ())], extra_attributes=0x20))
    with pytest.raises(ValueError, match="control"):
        whole_batches(control)
    with pytest.raises(ValueError, match="gaps"):
        whole_batches(bytes(build_batch([(0, None, b"v", ())], last_offset_delta=5)))
    assert whole_batches(b"") == []
