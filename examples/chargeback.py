"""Charge back whole transactions: python examples/chargeback.py 127.0.0.1:9092

A sale is one transaction over two topics: items and a payment. A disputed payment takes all of its sale back, never a
part. `consumer.transactions()` gives each committed transaction as one unit, from all its partitions. Kill the program
with kill -9 and run it again: each disputed sale is charged back once.
"""

import asyncio
import sys
import uuid
from collections import Counter

import fencepost

ITEMS, PAYMENTS, CHARGEBACKS, COUNT = "sale-items", "sale-payments", "sale-chargebacks", 200
Lines = Counter[tuple[bytes | None, bytes | None]]


async def read(kafka: fencepost.Client, *topics: str) -> Lines:
    """All committed records, counted."""
    async with kafka.consumer(*topics) as consumer:
        return Counter([(r.key, r.value) async for batch in consumer.read_to_end() for r in batch])


async def sell(kafka: fencepost.Client) -> bytes:
    """Write the sales that are not there yet, and one that ends the day; return the number of that one."""
    last = uuid.uuid4().hex.encode()
    async with kafka.admin() as admin:
        await admin.create_topics((ITEMS, PAYMENTS, CHARGEBACKS), partitions=2, if_not_exists=True)
    async with kafka.transactional_producer("sale-shop") as producer:
        there = {key for key, _ in await read(kafka, PAYMENTS)}
        for n in range(COUNT):
            sale = b"sale-%d" % n
            if sale not in there:
                async with producer.transaction() as txn:
                    for item in range(n % 4 + 1):
                        await txn.send(ITEMS, b"item %d" % item, key=sale, partition=item % 2)
                    await txn.send(PAYMENTS, b"disputed" if n % 4 == 3 else b"paid", key=sale)
        async with producer.transaction() as txn:
            await txn.send(PAYMENTS, b"end of day", key=last)
    return last


async def charge_back(kafka: fencepost.Client, last: bytes) -> None:
    """Go through the sales that are left, each a unit, up to the last one."""
    async with (
        # The instance id gives a restarted program the partitions of its killed predecessor at once.
        kafka.consumer(ITEMS, PAYMENTS, group="sale-bank", group_instance_id="sale-bank-1") as consumer,
        kafka.transactional_producer("sale-bank-1", transaction_timeout=30) as producer,
    ):
        async for unit in consumer.transactions():
            lines = [(record.key, record.value) for record in unit]
            disputed = any(value == b"disputed" for _, value in lines)
            async with producer.transaction() as txn:
                if disputed:
                    await txn.send_many(CHARGEBACKS, lines)
                await txn.send_offsets(consumer)
            if disputed:
                print(f"charged back {len(lines)} lines", flush=True)
            if any(key == last for key, _ in lines):
                return


async def main(address: str) -> bool:
    """Whether all lines of the disputed sales are charged back, once, and no other line."""
    async with fencepost.Client(address, client_id="sale") as kafka:
        await charge_back(kafka, await sell(kafka))
        sold, back = await read(kafka, ITEMS, PAYMENTS), await read(kafka, CHARGEBACKS)
        disputed = {key for key, value in sold if value == b"disputed"}
        print(f"{COUNT} sales, {len(disputed)} disputed, {back.total()} lines charged back")
        return back == Counter({line: count for line, count in sold.items() if line[0] in disputed})


if __name__ == "__main__":
    sys.exit(0 if asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092")) else 1)
