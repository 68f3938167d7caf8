"""Records through a real broker and back."""

import pytest
import trio

import fencepost
from fencepost import ErrorCode, KafkaError, TopicPartition


async def create(kafka: fencepost.Client, name: str, partitions: int = 1, **configs: str) -> None:
    async with kafka.admin() as admin:
        await admin.create_topics(name, partitions=partitions, configs=configs)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_every_codec_brings_back_what_was_sent(kafka: fencepost.Client, name: str, codec: str) -> None:
    await create(kafka, name)
    sent = [(b"k%d" % (n % 7), b"value %d " % n * 20) for n in range(500)]
    async with kafka.producer(compression=codec) as producer, producer.batch() as batch:
        await batch.send_many(name, sent)
    got = []
    async with kafka.consumer(name) as consumer:
        with trio.fail_after(100):
            async for records in consumer.batches(max_records=100):
                got += [(record.key, record.value) for record in records]
                if len(got) >= len(sent):
                    break
    assert got == sent


async def test_a_sent_record_tells_its_place_and_keeps_key_headers_and_time(kafka: fencepost.Client, name: str) -> None:
    await create(kafka, name, partitions=3)
    headers = (("trace", b"\x00\x01"), ("empty", b""), ("null", None))
    async with kafka.producer() as producer:
        first = await producer.send(name, b"v", key=b"k", headers=headers, timestamp_ms=1_700_000_000_000)
        null = await producer.send(name, None, key=b"k")
    assert first == (name, first.partition, 0, 1_700_000_000_000)
    assert (null.partition, null.offset) == (first.partition, 1)
    async with kafka.consumer(name) as consumer:
        with trio.fail_after(100):
            records = [await anext(aiter(consumer)), await anext(aiter(consumer))]
    assert records[0] == (name, first.partition, 0, 1_700_000_000_000, b"k", b"v", headers)
    assert (records[1].key, records[1].value) == (b"k", None)


async def test_keys_go_where_every_kafka_client_sends_them(kafka: fencepost.Client, name: str) -> None:
    """The default partitioner is Java's: murmur2 of the key; these places were computed with another client."""
    await create(kafka, name, partitions=10)
    async with kafka.producer() as producer:
        places = {
            key: (await producer.send(name, b"", key=key)).partition for key in (b"a", b"order-17", b"kafka", b"")
        }
    from kafka.partitioner.default import murmur2  # type: ignore[import-untyped]

    assert places == {key: (murmur2(key) & 0x7FFFFFFF) % 10 for key in places}


async def test_serializers_on_both_sides(kafka: fencepost.Client, name: str) -> None:
    await create(kafka, name)
    async with kafka.producer(value_serializer=str.encode, key_serializer=lambda n: b"%d" % n) as producer:
        await producer.send(name, "grüß", key=5)
    async with kafka.consumer(name, value_deserializer=bytes.decode, key_deserializer=int) as consumer:
        with trio.fail_after(100):
            record = await anext(aiter(consumer))
    assert (record.key, record.value) == (5, "grüß")


async def test_positions_seek_pause_and_lag(kafka: fencepost.Client, name: str) -> None:
    await create(kafka, name)
    here = TopicPartition(name, 0)
    async with kafka.producer() as producer, producer.batch() as batch:
        for n in range(10):
            await batch.send(name, b"%d" % n)
    async with kafka.consumer(name) as consumer:
        with trio.fail_after(100):
            records = aiter(consumer)
            assert (await anext(records)).value == b"0"
            assert await consumer.position(here) == 1
            assert consumer.lag() == {here: 9}
            consumer.seek(here, 7)
            assert (await anext(records)).value == b"7"
            consumer.seek_to_beginning()
            assert (await anext(records)).value == b"0"
            consumer.seek_to_end(here)
            assert await consumer.position(here) == 10
            assert await consumer.end_offsets() == {here: 10}
            consumer.seek(here, 3)
            consumer.pause(here)
            with trio.move_on_after(0.3) as waited:
                await anext(records)
            assert waited.cancelled_caught
            consumer.resume()
            assert (await anext(records)).value == b"3"


async def test_what_was_waited_for_in_vain_is_not_lost(kafka: fencepost.Client, name: str) -> None:
    """Stopping to wait, with any deadline of trio, loses no record."""
    await create(kafka, name)
    got: list[bytes] = []
    async with kafka.producer() as producer, kafka.consumer(name) as consumer:
        batches = consumer.batches(max_records=10, max_wait=0.2)
        for n in range(6):
            await producer.send(name, b"%d" % n)
            with trio.move_on_after(0.03):
                got += [record.value async for record in _once(batches)]
        with trio.fail_after(100):
            while len(got) < 6:
                got += [record.value for record in await anext(batches)]
    assert got == [b"%d" % n for n in range(6)]


async def _once(batches):  # type: ignore[no-untyped-def]
    for record in await anext(batches):
        yield record


async def test_a_consumer_waits_without_work_until_something_comes(kafka: fencepost.Client, name: str) -> None:
    await create(kafka, name)
    async with kafka.producer() as producer, kafka.consumer(name) as consumer, trio.open_nursery() as nursery:

        async def later() -> None:
            await trio.sleep(0.2)
            await producer.send(name, b"now")

        nursery.start_soon(later)
        with trio.fail_after(100):
            assert (await anext(aiter(consumer))).value == b"now"


async def test_offsets_out_of_range_follow_the_policy(kafka: fencepost.Client, name: str) -> None:
    await create(kafka, name)
    here = TopicPartition(name, 0)
    async with kafka.producer() as producer:
        for n in range(5):
            await producer.send(name, b"%d" % n)
    async with kafka.admin() as admin:
        assert await admin.delete_records({here: 3}) == {here: 3}
    with trio.fail_after(100):
        async with kafka.consumer(auto_offset_reset="earliest") as consumer:
            consumer.assign([here])
            consumer.seek(here, 1)
            assert (await anext(aiter(consumer))).offset == 3
        async with kafka.consumer(auto_offset_reset="none") as consumer:
            consumer.assign([here])
            consumer.seek(here, 99)
            with pytest.raises(KafkaError) as none:
                await anext(aiter(consumer))
            assert none.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_many_partitions_are_read_to_their_ends(kafka: fencepost.Client, name: str) -> None:
    await create(kafka, name, partitions=12)
    async with kafka.producer() as producer, producer.batch() as batch:
        for n in range(3000):
            await batch.send(name, b"%d" % n, key=b"%d" % n)
    got: dict[int, list[int]] = {}
    async with kafka.consumer(name, max_partition_fetch_bytes=2000) as consumer:
        with trio.fail_after(100):
            async for records in consumer.batches(max_records=700):
                for record in records:
                    got.setdefault(record.partition, []).append(record.offset)
                if sum(map(len, got.values())) >= 3000:
                    break
        assert set(consumer.lag().values()) == {0}
    assert all(offsets == list(range(len(offsets))) for offsets in got.values())
    assert len(got) == 12


async def test_clients_from_dotted_names(address: str, name: str) -> None:
    config = {"bootstrap.servers": address, "linger.ms": "1", "group.id": name, "compression.type": "gzip"}
    async with fencepost.Client.from_config(config) as kafka:
        await create(kafka, name)
        async with kafka.producer() as producer:
            await producer.send(name, b"x")
        async with kafka.consumer(name) as consumer:
            with trio.fail_after(100):
                assert (await anext(aiter(consumer))).value == b"x"
            assert consumer.group_id == name
