"""Topics for the tests of transactions, and what a reader sees of them."""

import trio

import fencepost


async def create(kafka: fencepost.Client, *names: str, partitions: int = 2) -> None:
    async with kafka.admin() as admin:
        for name in names:
            await admin.create_topics(name, partitions=partitions, if_not_exists=True)


async def read_all(kafka: fencepost.Client, topic: str, isolation: str = "read_committed") -> list[bytes]:
    """Everything up to the end as it is now, in order of partition and offset."""
    found = []
    async with kafka.consumer(topic, isolation=isolation) as consumer:
        ends = await consumer.end_offsets()
        with trio.fail_after(100):
            records = consumer.batches()
            while any([await consumer.position(p) < end for p, end in ends.items()]):
                with trio.move_on_after(0.5):
                    found += [(r.partition, r.offset, r.value) for r in await anext(records)]
    return [value for _, _, value in sorted(found)]
