"""Two members of a group share a topic, and one takes over when the other leaves: python -m examples.two_consumers."""

import sys
from collections import Counter

import trio

import fencepost

TOPIC, GROUP = "clicks", "counting"


class Tally:
    """Who has read how much; `changed` is set after every batch."""

    def __init__(self) -> None:
        self.read: Counter[str] = Counter()
        self.changed = trio.Event()

    def add(self, who: str, count: int) -> None:
        """Note a batch."""
        self.read[who] += count
        self.changed.set()
        self.changed = trio.Event()

    async def until(self, total: int) -> None:
        """Return when so many records were read."""
        while self.read.total() < total:
            await self.changed.wait()


async def count(kafka: fencepost.Client, who: str, tally: Tally) -> None:
    """One member: reads what the group gives it, and commits after each batch."""
    async with kafka.consumer(TOPIC, group=GROUP) as consumer:
        async for batch in consumer.batches():
            tally.add(who, len(batch))
            await consumer.commit()


async def write(kafka: fencepost.Client, how_many: int) -> None:
    """Some clicks on every partition."""
    async with kafka.producer() as producer, producer.batch() as batch:
        for n in range(how_many):
            await batch.send(TOPIC, b"click", partition=n % 4)


async def main(address: str) -> None:
    """Ann and Bob read together; then Bob goes home, and Ann reads all."""
    tally = Tally()
    async with fencepost.Client(address) as kafka, kafka.admin() as admin:
        await admin.create_topics(TOPIC, partitions=4, if_not_exists=True)
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(count, kafka, "Ann", tally)
                bobs_day = trio.CancelScope()

                async def bob() -> None:
                    with bobs_day:
                        await count(kafka, "Bob", tally)

                nursery.start_soon(bob)
                await both_have_work(admin)
                await write(kafka, 400)
                await tally.until(400)
                assert min(tally.read["Ann"], tally.read["Bob"]) > 0
                print(f"together: {dict(tally.read)}")
                bobs_day.cancel()
                before = tally.read["Bob"]
                await write(kafka, 400)
                await tally.until(800)
                assert tally.read["Bob"] == before
                print(f"alone:    {dict(tally.read)}")
                nursery.cancel_scope.cancel()


async def both_have_work(admin: fencepost.Admin) -> None:
    """Wait until the group has two members with partitions of their own."""
    while True:
        told = (await admin.describe_groups(GROUP))[GROUP]
        if len([member for member in told.members if member.partitions]) == 2:
            return
        await trio.sleep(0.1)


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092")
