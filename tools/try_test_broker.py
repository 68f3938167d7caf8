"""Tries client and test broker of an installation in one process, as on Windows. Prints ok, or ends with an error."""

import asyncio

import fencepost
from fencepost.testing import Broker


async def through(bootstrap: str) -> list[bytes | None]:
    """Send two records in a transaction, and read them as a group."""
    async with fencepost.Client(bootstrap) as kafka:
        async with kafka.transactional_producer("try") as producer, producer.transaction() as txn:
            await txn.send("events", b"first")
            await txn.send("events", b"second")
        async with kafka.consumer("events", group="try") as consumer:
            return [record.value async for batch in consumer.read_to_end() for record in batch]


def main() -> None:
    """Fail unless each record is read once."""
    with Broker() as broker:
        broker.create_topic("events")
        read = asyncio.run(through(broker.bootstrap))
        broker.assert_exactly_once("events", ["first", "second"])
    if read != [b"first", b"second"]:
        raise SystemExit(f"it read {read}")
    print("ok")


if __name__ == "__main__":
    main()
