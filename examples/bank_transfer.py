"""Transfer money between accounts, each transfer once: python examples/bank_transfer.py 127.0.0.1:9092

A transfer is a debit and a credit. Both, and the position in the queue of requests, are one transaction. Kill the
program with kill -9 and run it again: no money appears or disappears, and no transfer is made twice.
"""

import random
import sys
from collections import Counter

import trio

import fencepost

REQUESTS, BOOKINGS, COUNT = "bank-requests", "bank-bookings", 400
NAMES = (b"ann", b"bob", b"cem", b"dee", b"eva")


async def read(kafka: fencepost.Client, topic: str) -> list[tuple[bytes, bytes]]:
    """The keys and values of all committed records."""
    async with kafka.consumer(topic) as consumer:
        return [(r.key or b"", r.value or b"") async for batch in consumer.read_to_end() for r in batch]


async def place_requests(kafka: fencepost.Client) -> None:
    """Write the requests, all of them or none, unless an earlier run did."""
    async with kafka.admin() as admin:
        await admin.create_topics((REQUESTS, BOOKINGS), partitions=3, if_not_exists=True)
    async with kafka.transactional_producer("bank-requests") as producer:
        if not await read(kafka, REQUESTS):
            async with producer.transaction() as txn:
                for n in range(COUNT):
                    payer, payee = random.sample(NAMES, 2)
                    await txn.send(REQUESTS, b"%s %s %d" % (payer, payee, random.randint(1, 99)), key=b"%d" % n)


async def transfer(kafka: fencepost.Client) -> None:
    """Book the requests that are left, ten in a transaction."""
    async with (
        # The instance id gives a restarted program the partitions of its killed predecessor at once.
        kafka.consumer(REQUESTS, group="bank", group_instance_id="bank-1") as consumer,
        kafka.transactional_producer("bank-1", transaction_timeout=30) as producer,
    ):
        async for batch in consumer.read_to_end(max_records=10):
            try:
                async with producer.transaction() as txn:
                    for request in batch:
                        payer, payee, amount = (request.value or b"").split()
                        number = request.key or b""
                        await txn.send(BOOKINGS, b"%s -%s" % (number, amount), key=payer)
                        await txn.send(BOOKINGS, b"%s +%s" % (number, amount), key=payee)
                    await txn.send_offsets(consumer)
            except fencepost.AbortableError as error:
                print(f"aborted, the same requests come again: {error}")
            else:
                print(f"booked {len(batch)} requests", flush=True)


async def check(kafka: fencepost.Client) -> bool:
    """Whether each request has its debit and its credit, and nothing else is booked."""
    expected: Counter[tuple[bytes, bytes]] = Counter()
    for number, request in await read(kafka, REQUESTS):
        payer, payee, amount = request.split()
        expected[payer, b"%s -%s" % (number, amount)] += 1
        expected[payee, b"%s +%s" % (number, amount)] += 1
    bookings = await read(kafka, BOOKINGS)
    total = sum(int(booking.split()[1]) for _, booking in bookings)
    print(f"{COUNT} transfers, {len(bookings)} bookings, sum of all accounts {total}")
    return Counter(bookings) == expected and len(bookings) == 2 * COUNT and total == 0


async def main(address: str) -> bool:
    """Whether the books are right."""
    async with fencepost.Client(address, client_id="bank") as kafka:
        await place_requests(kafka)
        await transfer(kafka)
        return await check(kafka)


if __name__ == "__main__":
    sys.exit(0 if trio.run(main, sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092") else 1)
