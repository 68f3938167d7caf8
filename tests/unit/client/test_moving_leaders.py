"""The whole producer while leaders move and answers are lost: once, in order, truly told, and nothing left behind."""

from collections.abc import Callable
from contextlib import suppress
from itertools import count
from random import Random
from typing import Any

import pytest
import trio
import trio.testing

import fencepost
from fencepost import Delivery, DeliveryError, KafkaError
from tests.kit.moving_brokers import MovingWorld

PARTITIONS, SENDERS = 3, 6
ENOUGH_S = 10_000
"""Of the clock that jumps."""
Value = tuple[int, bytes]
"""Partition and value."""


class Books:
    """What was handed in, in order, and what was said of it."""

    def __init__(self) -> None:
        self.order: dict[tuple[int, int], list[bytes]] = {}
        self.said: dict[Value, int | DeliveryError | KafkaError] = {}
        self.asked_later: list[tuple[Value, Delivery]] = []

    def note(self, value: Value, result: Callable[[], fencepost.RecordMetadata]) -> None:
        """`result` tells of the value, or raises what is wrong with it."""
        try:
            self.said[value] = result().offset
        except KafkaError as error:
            self.said[value] = error

    def check(self, logs: list[list[bytes]]) -> None:
        for partition, log in enumerate(logs):
            assert len(set(log)) == len(log), "nothing comes twice"
            for (here, sender), values in self.order.items():
                if here == partition:
                    there = [value for value in log if value.startswith(b"%d/" % sender)]
                    assert there == [value for value in values if value in set(there)], "and all in order"
        for (partition, value), said in self.said.items():
            if isinstance(said, int):
                assert value in logs[partition]
                assert said < 0 or logs[partition][said] == value
            elif isinstance(said, DeliveryError) and not said.may_be_written:
                assert value not in logs[partition]


async def send(producer: fencepost.Producer[bytes, bytes], books: Books, sender: int, random: Random) -> None:
    """Some wait for the answer, some ask later, some are cancelled on the way."""
    partition = sender % PARTITIONS
    for number in range(random.choice((10, 40))):
        value = b"%d/%d/" % (sender, number) + b"x" * random.choice((0, 10, 60))
        books.order.setdefault((partition, sender), []).append(value)
        patience_s = random.choice((0.001, 1, 10)) if random.random() < 0.15 else 10**6
        with trio.move_on_after(patience_s):
            try:
                delivery = await producer.submit("t", value, partition=partition)
            except KafkaError as error:
                books.said[partition, value] = error
                continue
            books.asked_later.append(((partition, value), delivery))
            if random.random() < 0.6:
                try:
                    await delivery.wait()
                except KafkaError:
                    continue  # it is asked once more at the end
        if random.random() < 0.1:
            await trio.sleep(random.choice((0.01, 1, 5)))


@pytest.mark.parametrize("seed", range(8))
async def test_once_and_in_order_while_leaders_move(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, seed: int
) -> None:
    """P2 to P7, and the buffer: what was given up gives back its memory, too."""
    random = Random(seed)
    world, books = MovingWorld(random, PARTITIONS), Books()
    for broker in world.brokers.values():
        await nursery.start(broker.serve)
    options: dict[str, Any] = {
        "batch_size": random.choice((100, 200, 4000)),
        "linger": random.choice((0, 0, 0.005, 0.1)),
        "delivery_timeout": random.choice((5, 30, 120)),
        "buffer_memory": random.choice((1500, 20_000, 10**6)),
    }
    connection = {"request_timeout": random.choice((2, 10)), "random": Random(seed)}
    addresses = [broker.address for broker in world.brokers.values()]
    async with fencepost.Client(addresses, **connection) as kafka, kafka.producer(**options) as producer:
        async with trio.open_nursery() as senders:
            senders.start_soon(world.move)
            for sender in range(SENDERS):
                senders.start_soon(send, producer, books, sender, Random(seed * 100 + sender))
            await trio.sleep(random.choice((20, 100, 400)))
            world.calm = True
        with trio.fail_after(ENOUGH_S):
            producer._appender.accumulator.flush()
            for value, delivery in books.asked_later:
                with suppress(KafkaError):
                    await delivery.wait()
                books.note(value, delivery.result)
            while producer._appender.accumulator.active:  # noqa: ASYNC110 - what was given up ends with its request
                await trio.sleep(1)
        figures = producer.metrics()
        assert figures.buffer_available_bytes == figures.buffer_total_bytes
        for partition in range(PARTITIONS):
            await send_until_taken(producer, partition)
    assert all(log[-1].startswith(b"the end") for log in world.logs)
    books.check(world.logs)


async def send_until_taken(producer: fencepost.Producer[bytes, bytes], partition: int) -> None:
    """All is calm now, and the producer goes on as if nothing had been."""
    for attempt in count():
        with suppress(DeliveryError):  # the clock may have jumped over the deadline
            await producer.send("t", b"the end %d" % attempt, partition=partition)
            return
