"""Enrich each order with its customer, exactly once: python examples/enrichment.py 127.0.0.1:9092

Customers are a compacted topic, which the program reads into a dictionary. Then it reads orders and writes enriched
orders; results and position are one transaction. Kill it with kill -9 and run it again: each order is enriched once.
"""

import sys
from collections import Counter

import trio

import fencepost

CUSTOMERS, ORDERS, ENRICHED, COUNT = "enrich-customers", "enrich-orders", "enrich-enriched", 600
PEOPLE = {b"c1": b"Ann, Aachen", b"c2": b"Bob, Basel", b"c3": b"Cem, Como"}


async def read(kafka: fencepost.Client, topic: str) -> list[tuple[bytes, bytes]]:
    """The keys and values of all committed records."""
    async with kafka.consumer(topic) as consumer:
        return [(r.key or b"", r.value or b"") async for batch in consumer.read_to_end() for r in batch]


async def prepare(kafka: fencepost.Client) -> None:
    """Write customers and orders, all of them or none, unless an earlier run did."""
    async with kafka.admin() as admin:
        await admin.create_topics(CUSTOMERS, partitions=1, configs={"cleanup.policy": "compact"}, if_not_exists=True)
        await admin.create_topics((ORDERS, ENRICHED), partitions=3, if_not_exists=True)
    async with kafka.transactional_producer("enrich-prepare") as producer:
        if not await read(kafka, ORDERS):
            async with producer.transaction() as txn:
                await txn.send_many(CUSTOMERS, PEOPLE.items())
                await txn.send_many(ORDERS, ((b"order-%d" % n, b"c%d" % (n % 3 + 1)) for n in range(COUNT)))


async def enrich(kafka: fencepost.Client) -> None:
    """Enrich the orders that are left, 20 in a transaction."""
    customers = dict(await read(kafka, CUSTOMERS))  # the last value of each key counts
    async with (
        # The instance id gives a restarted program the partitions of its killed predecessor at once.
        kafka.consumer(ORDERS, group="enrich", group_instance_id="enrich-1") as consumer,
        kafka.transactional_producer("enrich-1", transaction_timeout=30) as producer,
    ):
        async for batch in consumer.read_to_end(max_records=20):
            try:
                async with producer.transaction() as txn:
                    for order in batch:
                        await txn.send(ENRICHED, customers[order.value or b""], key=order.key)
                    await txn.send_offsets(consumer)
            except fencepost.AbortableError as error:
                print(f"aborted, the same orders come again: {error}")
            else:
                print(f"enriched {len(batch)} orders", flush=True)


async def main(address: str) -> bool:
    """Whether each order is enriched, once, with the right customer."""
    async with fencepost.Client(address, client_id="enrich") as kafka:
        await prepare(kafka)
        await enrich(kafka)
        results = await read(kafka, ENRICHED)
        print(f"{COUNT} orders, {len(results)} enriched orders")
        return Counter(results) == Counter((order, PEOPLE[who]) for order, who in await read(kafka, ORDERS))


if __name__ == "__main__":
    sys.exit(0 if trio.run(main, sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092") else 1)
