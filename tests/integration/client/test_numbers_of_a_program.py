"""Numbers that a program or a peer names, beyond what their type or Kafka allows: refused where they enter.

Kafka: `OffsetAndMetadata` ("Invalid negative offset"), `LogValidator.validateTimestamp`, `DefaultRecord.readFrom`.
"""

from collections.abc import Awaitable, Callable

import pytest

import fencepost
from fencepost import TopicPartition
from fencepost.client import CommittedOffset
from fencepost.client.core.group_types import GroupMetadata
from fencepost.protocol.batch_header import HEADER_SIZE, LOG_OVERHEAD, pack_header, read_header
from fencepost.protocol.compression import Compression, compress
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import build_batch
from fencepost.protocol.varints import LONG_MAX, LONG_MIN, put_signed_varint, wrapped
from tests.kit.broker_process import BrokerProcess
from tests.kit.wire import NOW_MS, Wire, batch_of, values_in

OVERFLOWS = [(NOW_MS, LONG_MAX), (0, LONG_MIN), (LONG_MIN, -5)]
"""Base timestamps and deltas whose sum is beyond 64 bits, or far in the past."""


def batch_with(base_ms: int, delta: int, codec: Compression = Compression.NONE) -> bytearray:
    """One record with this delta; the header claims the base timestamp as the latest one."""
    record = b"\0" + put_signed_varint(delta) + b"\0\x01\x02v\0"
    batch = build_batch([(base_ms, None, b"v", ())], compression=codec)
    header = read_header(batch)
    batch[HEADER_SIZE:] = compress(codec, put_signed_varint(len(record)) + record)
    header = header._replace(batch_length=len(batch) - LOG_OVERHEAD, base_timestamp=base_ms, max_timestamp=base_ms)
    pack_header(batch, 0, header)
    return batch


@pytest.mark.parametrize("number", range(len(OVERFLOWS)))
def test_a_timestamp_beyond_64_bits_is_refused(broker_of_module: BrokerProcess, number: int) -> None:
    """L7: it was accepted, and ListOffsets then ended the connection for all partitions of its request."""
    topic = f"overflow-{number}"
    with Wire(broker_of_module.connect()) as wire:
        wire.create_topic(topic)
        refused = wire.produce(topic, batch_with(*OVERFLOWS[number]))
        assert (refused.error_code, refused.base_offset) == (ErrorCode.INVALID_TIMESTAMP, -1)
        assert [one.batch_index for one in refused.record_errors] == [0]
        assert wire.produce(topic, batch_of(b"ok")).error_code == ErrorCode.NONE


def test_a_header_that_hides_a_timestamp_in_the_future_is_refused(broker_of_module: BrokerProcess) -> None:
    with Wire(broker_of_module.connect()) as wire:
        wire.create_topic("hidden")
        refused = wire.produce("hidden", batch_with(NOW_MS, 10**13))
        assert refused.error_code == ErrorCode.INVALID_TIMESTAMP
        assert wire.produce("hidden", batch_with(NOW_MS, 5)).error_code == ErrorCode.NONE


@pytest.mark.parametrize("number", range(len(OVERFLOWS)))
async def test_a_wrapped_timestamp_in_a_compressed_batch_stops_no_reader(
    broker_of_module: BrokerProcess, number: int
) -> None:
    """A plain topic's compressed batches are not decompressed by the broker, and old logs may have such records."""
    topic = f"wrapped-{number}"
    base_ms, delta = OVERFLOWS[number]
    with Wire(broker_of_module.connect()) as wire:
        wire.create_topic(topic)
        assert wire.produce(topic, batch_with(base_ms, delta, Compression.LZ4)).error_code == ErrorCode.NONE
        assert wire.produce(topic, batch_of(b"after")).error_code == ErrorCode.NONE
        for timestamp in (-3, 0, NOW_MS):
            assert wire.offset_of(topic, timestamp).error_code == ErrorCode.NONE
        assert values_in(wire.fetch(topic)) == [b"v", b"after"]
    async with fencepost.Client(broker_of_module.address) as kafka, kafka.consumer(topic) as consumer:
        stamp = (await anext(aiter(consumer))).timestamp_ms
        assert stamp == wrapped(base_ms + delta)
        consumer.seek_to_beginning()
        found = []
        async for table in consumer.arrow():
            found += table.column("offset").to_pylist()
            if len(found) == 2:
                break
        assert found == [0, 1]


async def test_a_negative_offset_is_not_committed(broker_of_module: BrokerProcess) -> None:
    """`commit({p: -5})` erased the group's position: the broker stored it, and the next reader began elsewhere."""
    with Wire(broker_of_module.connect()) as wire:
        wire.create_topic("negative")
        wire.produce("negative", batch_of(b"0", b"1", b"2"))
    where = TopicPartition("negative", 0)
    async with fencepost.Client(broker_of_module.address) as kafka:
        async with kafka.consumer("negative", group="negative") as consumer:
            await consumer.commit({where: 2})
            for bad in (-5, -1, CommittedOffset(-7), CommittedOffset(1, -2), 2**63):
                with pytest.raises(ValueError, match="to commit for negative-0 must be from"):
                    await consumer.commit({where: bad})
            with pytest.raises(TypeError, match="must be an int, not float"):
                await consumer.commit({where: 1.5})  # type: ignore[dict-item]
            assert await consumer.committed(where) == {where: 2}
        async with kafka.admin() as admin:
            with pytest.raises(ValueError, match="must be from 0"):
                await admin.alter_group_offsets("negative", {where: -7})
            assert (await admin.list_group_offsets("negative"))[where].offset == 2


async def test_no_number_of_a_program_fails_to_encode(broker_of_module: BrokerProcess) -> None:
    """Other places where a program names an offset or a time."""
    with Wire(broker_of_module.connect()) as wire:
        wire.create_topic("numbers")
        wire.produce("numbers", batch_of(b"0"))
    where, beyond = TopicPartition("numbers", 0), 2**63
    async with (
        fencepost.Client(broker_of_module.address) as kafka,
        kafka.consumer("numbers", group="numbers") as consumer,
        kafka.admin() as admin,
        kafka.transactional_producer("numbers") as producer,
    ):
        await anext(aiter(consumer))
        attempts: list[Callable[[], Awaitable[object]]] = [
            lambda: admin.delete_records({where: -2}),
            lambda: admin.delete_records({where: beyond}),
            lambda: admin.list_offsets(where, at=beyond),
        ]
        for attempt in attempts:
            with pytest.raises(ValueError, match="must be from"):
                await attempt()
        for move in (consumer.seek_to_timestamp, lambda number: consumer.seek(where, number)):
            with pytest.raises(ValueError, match="must be from"):
                move(beyond)
        async with producer.transaction() as txn:
            with pytest.raises(ValueError, match="must be from"):
                await txn.send_offsets(consumer, {where: -1})
            with pytest.raises(ValueError, match="must be from"):
                await txn.send_group_offsets(GroupMetadata("numbers"), {where: CommittedOffset(-1)})
            await txn.send(where.topic, b"v")
