"""The topic that tests of broker processes write, and all of its records."""

import trio

from fencepost.client import Client

TOPIC = "orders"
SECONDS = 60


async def create(kafka: Client, partitions: int = 1) -> None:
    """Create the topic."""
    async with kafka.admin() as admin:
        await admin.create_topics(TOPIC, partitions=partitions)


async def everything(bootstrap: str, count: int) -> list[tuple[int, bytes]]:
    """The offsets and values of the first `count` committed records."""
    found: list[tuple[int, bytes]] = []
    async with Client(bootstrap) as kafka, kafka.consumer(TOPIC, auto_offset_reset="earliest") as consumer:
        with trio.fail_after(SECONDS):
            async for record in consumer:
                found.append((record.offset, record.value))
                if len(found) == count:
                    return found
    raise AssertionError("the consumer ended")
