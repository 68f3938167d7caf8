"""What tests of the client under asyncio share: a loop with a deadline, topics, and what a reader sees of them."""

import asyncio
import gc
import os
from collections.abc import Coroutine
from typing import Any

from fencepost import Client

WAIT_S = 100.0


def run(main: Coroutine[Any, Any, Any]) -> None:
    """Run it to its end, with a deadline, and see that neither a task nor a socket is left."""

    async def bounded() -> None:
        async with asyncio.timeout(WAIT_S):
            await main
        assert asyncio.all_tasks() == {asyncio.current_task()}

    gc.collect()
    before = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
    asyncio.run(bounded())
    gc.collect()
    assert not before or len(os.listdir("/proc/self/fd")) <= before


async def create(kafka: Client, *topics: str, partitions: int = 1) -> None:
    async with kafka.admin() as admin:
        for topic in topics:
            await admin.create_topics(topic, partitions=partitions)


async def committed_values(kafka: Client, topic: str) -> list[bytes | None]:
    found: list[bytes | None] = []
    async with kafka.consumer(topic) as consumer:
        async for batch in consumer.read_to_end():
            found += [record.value for record in batch]
    return found
