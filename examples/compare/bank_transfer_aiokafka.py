"""Transfer money with aiokafka, as examples/bank_transfer.py does: python bank_transfer_aiokafka.py 127.0.0.1:9092

A debit, a credit and the position in the queue of requests are one transaction. Kill the program with kill -9 and run
it again: no transfer is made twice.
"""

import asyncio
import random
import sys
from collections import Counter
from collections.abc import Iterable

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, ProducerFenced

REQUESTS, BOOKINGS, COUNT = "aiokafka-bank-requests", "aiokafka-bank-bookings", 400
NAMES = (b"ann", b"bob", b"cem", b"dee", b"eva")


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


async def place_requests(address: str) -> None:
    """Write the requests, all of them or none, unless an earlier run did."""
    admin = AIOKafkaAdminClient(bootstrap_servers=address)
    try:
        await admin.start()
        await admin.create_topics([NewTopic(REQUESTS, 3, 1), NewTopic(BOOKINGS, 3, 1)])
    finally:
        await admin.close()
    async with AIOKafkaProducer(bootstrap_servers=address, transactional_id=REQUESTS) as producer:
        if not await read(address, REQUESTS):
            async with producer.transaction():
                sent = []
                for n in range(COUNT):
                    payer, payee = random.sample(NAMES, 2)
                    request = b"%s %s %d" % (payer, payee, random.randint(1, 99))
                    sent.append(await producer.send(REQUESTS, request, key=b"%d" % n))
                await asyncio.gather(*sent)


async def transfer(address: str) -> None:
    """Book the requests that are left, ten in a transaction."""
    busy = asyncio.Lock()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=address,
        group_id="aiokafka-bank",
        group_instance_id="bank-1",  # a restarted program takes its predecessor's partitions at once
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    consumer.subscribe([REQUESTS], listener=TransactionsFirst(busy))
    # The producer first: it aborts what a killed predecessor left open.
    async with AIOKafkaProducer(bootstrap_servers=address, transactional_id="aiokafka-bank-1") as producer, consumer:
        while (batch := await consumer.getmany(timeout_ms=200, max_records=10)) or not await at_end(consumer):
            if not batch:
                continue
            async with busy:
                try:
                    async with producer.transaction():
                        sent = []
                        for request in (request for requests in batch.values() for request in requests):
                            payer, payee, amount = request.value.split()
                            debit, credit = b"%s -%s" % (request.key, amount), b"%s +%s" % (request.key, amount)
                            sent.append(await producer.send(BOOKINGS, debit, key=payer))
                            sent.append(await producer.send(BOOKINGS, credit, key=payee))
                        await asyncio.gather(*sent)  # a commit does not look whether records failed
                        positions = {partition: requests[-1].offset + 1 for partition, requests in batch.items()}
                        await producer.send_offsets_to_transaction(positions, "aiokafka-bank")
                except ProducerFenced:
                    raise
                except KafkaError as error:
                    print(f"aborted, the same requests come again: {error}")
                    for partition, requests in batch.items():
                        consumer.seek(partition, requests[0].offset)
                else:
                    print(f"booked {sum(map(len, batch.values()))} requests", flush=True)


async def check(address: str) -> bool:
    """Whether each request has its debit and its credit, and nothing else is booked."""
    expected: Counter[tuple[bytes, bytes]] = Counter()
    for number, request in await read(address, REQUESTS):
        payer, payee, amount = request.split()
        expected[payer, b"%s -%s" % (number, amount)] += 1
        expected[payee, b"%s +%s" % (number, amount)] += 1
    bookings = await read(address, BOOKINGS)
    total = sum(int(booking.split()[1]) for _, booking in bookings)
    print(f"{COUNT} transfers, {len(bookings)} bookings, sum of all accounts {total}")
    return Counter(bookings) == expected and len(bookings) == 2 * COUNT and total == 0


async def main(address: str) -> bool:
    """Whether the books are right."""
    await place_requests(address)
    await transfer(address)
    return await check(address)


if __name__ == "__main__":
    sys.exit(0 if asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092")) else 1)
