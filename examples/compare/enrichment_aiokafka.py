"""Enrich orders with aiokafka, as examples/enrichment.py does: python enrichment_aiokafka.py 127.0.0.1:9092

Enriched orders and the position in the orders are one transaction. Kill the program with kill -9 and run it again: each
order is enriched once.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import Iterable

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, ProducerFenced

CUSTOMERS, ORDERS, ENRICHED = "aiokafka-enrich-customers", "aiokafka-enrich-orders", "aiokafka-enrich-enriched"
COUNT = 600
PEOPLE = {b"c1": b"Ann, Aachen", b"c2": b"Bob, Basel", b"c3": b"Cem, Como"}


class TransactionsFirst(ConsumerRebalanceListener):
    """Lets a rebalance wait for the transaction in hand: aiokafka rebalances in the background."""

    def __init__(self, busy: asyncio.Lock) -> None:
        self.busy = busy

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Called before this member joins again."""
        async with self.busy:
            pass

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Nothing is to be done."""


async def at_end(consumer: AIOKafkaConsumer) -> bool:
    """Whether each partition is read to its end."""
    ends = await consumer.end_offsets(consumer.assignment())
    return all([await consumer.position(partition) >= end for partition, end in ends.items()])


async def read(address: str, topic: str) -> list[tuple[bytes, bytes]]:
    """The keys and values of all committed records."""
    found = []
    async with AIOKafkaConsumer(
        topic, bootstrap_servers=address, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        while (batch := await consumer.getmany(timeout_ms=200)) or not await at_end(consumer):
            found += [(record.key, record.value) for records in batch.values() for record in records]
    return found


async def prepare(address: str) -> None:
    """Write customers and orders, all of them or none, unless an earlier run did."""
    admin = AIOKafkaAdminClient(bootstrap_servers=address)
    try:
        await admin.start()
        customers = NewTopic(CUSTOMERS, 1, 1, topic_configs={"cleanup.policy": "compact"})
        await admin.create_topics([customers, NewTopic(ORDERS, 3, 1), NewTopic(ENRICHED, 3, 1)])
    finally:
        await admin.close()
    async with AIOKafkaProducer(bootstrap_servers=address, transactional_id=ORDERS) as producer:
        if not await read(address, ORDERS):
            async with producer.transaction():
                sent = [await producer.send(CUSTOMERS, person, key=key) for key, person in PEOPLE.items()]
                for n in range(COUNT):
                    sent.append(await producer.send(ORDERS, b"c%d" % (n % 3 + 1), key=b"order-%d" % n))
                await asyncio.gather(*sent)


async def enrich(address: str) -> None:
    """Enrich the orders that are left, 20 in a transaction."""
    customers = dict(await read(address, CUSTOMERS))  # the last value of each key counts
    busy = asyncio.Lock()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=address,
        group_id="aiokafka-enrich",
        group_instance_id="enrich-1",  # a restarted program takes its predecessor's partitions at once
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    consumer.subscribe([ORDERS], listener=TransactionsFirst(busy))
    # The producer first: it aborts what a killed predecessor left open.
    async with AIOKafkaProducer(bootstrap_servers=address, transactional_id="aiokafka-enrich-1") as producer, consumer:
        while (batch := await consumer.getmany(timeout_ms=200, max_records=20)) or not await at_end(consumer):
            if not batch:
                continue
            async with busy:
                try:
                    async with producer.transaction():
                        sent = [
                            await producer.send(ENRICHED, customers[order.value], key=order.key)
                            for orders in batch.values()
                            for order in orders
                        ]
                        await asyncio.gather(*sent)  # a commit does not look whether records failed
                        positions = {partition: orders[-1].offset + 1 for partition, orders in batch.items()}
                        await producer.send_offsets_to_transaction(positions, "aiokafka-enrich")
                except ProducerFenced:
                    raise
                except KafkaError as error:
                    print(f"aborted, the same orders come again: {error}")
                    for partition, orders in batch.items():
                        consumer.seek(partition, orders[0].offset)
                else:
                    print(f"enriched {sum(map(len, batch.values()))} orders", flush=True)


async def main(address: str) -> bool:
    """Whether each order is enriched, once, with the right customer."""
    await prepare(address)
    await enrich(address)
    results = await read(address, ENRICHED)
    print(f"{COUNT} orders, {len(results)} enriched orders")
    return Counter(results) == Counter((order, PEOPLE[who]) for order, who in await read(address, ORDERS))


if __name__ == "__main__":
    sys.exit(0 if asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092")) else 1)
