"""How the tests of this folder read: a few records, with a deadline of the test's own."""

from collections.abc import Awaitable, Callable
from typing import Any

import trio

import fencepost
from fencepost import TopicPartition
from tests.kit.fetch_broker import FetchBroker
from tests.kit.waiting import soon

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
Start = Callable[..., Awaitable[FetchBroker]]


async def read(consumer: fencepost.Consumer[Any, Any], count: int) -> list[tuple[int, int]]:
    """(Partition, offset) of the next `count` records."""
    found: list[tuple[int, int]] = []
    with trio.fail_after(100):
        async for batch in consumer.batches(count):
            found += [(record.partition, record.offset) for record in batch]
            if len(found) >= count:
                return found
    raise AssertionError


def values(first: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


async def wait_fetched(consumer: fencepost.Consumer[Any, Any], partition: TopicPartition, offset: int) -> None:
    await soon(lambda: consumer._fetcher.states[partition].fetch_offset >= offset)
