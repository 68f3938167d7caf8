"""Set records aside that cannot be processed: python examples/dead_letter.py 127.0.0.1:9092

A record that fails would stop its partition for ever. So it goes to a dead-letter topic, with the error and its origin
as headers. Results, dead letters and position are one transaction: each record is in one of the two topics, once.
"""

import sys
from collections import Counter

import trio

import fencepost

READINGS, CELSIUS, DEAD, COUNT = "dead-readings", "dead-celsius", "dead-letters", 600


async def read(kafka: fencepost.Client, topic: str) -> list[fencepost.ConsumerRecord[bytes, bytes]]:
    """All committed records."""
    async with kafka.consumer(topic) as consumer:
        return [record async for batch in consumer.read_to_end() for record in batch]


async def prepare(kafka: fencepost.Client) -> None:
    """Write readings in Fahrenheit, some of them damaged, unless an earlier run did."""
    async with kafka.admin() as admin:
        await admin.create_topics((READINGS, CELSIUS, DEAD), partitions=2, if_not_exists=True)
    async with kafka.transactional_producer("dead-prepare") as producer:
        if not await read(kafka, READINGS):
            async with producer.transaction() as txn:
                values = (b"#?!" if n % 50 == 7 else b"%d" % (n % 100) for n in range(COUNT))
                await txn.send_many(READINGS, ((b"reading-%d" % n, value) for n, value in enumerate(values)))


async def convert(kafka: fencepost.Client) -> None:
    """Convert the readings that are left, 20 in a transaction."""
    async with (
        # The instance id gives a restarted program the partitions of its killed predecessor at once.
        kafka.consumer(READINGS, group="dead", group_instance_id="dead-1") as consumer,
        kafka.transactional_producer("dead-1", transaction_timeout=30) as producer,
    ):
        async for batch in consumer.read_to_end(max_records=20):
            try:
                async with producer.transaction() as txn:
                    for record in batch:
                        try:
                            celsius = (int(record.value or b"") - 32) * 5 / 9
                        except ValueError as error:
                            origin = f"{record.topic}-{record.partition}@{record.offset}"
                            headers = [("error", str(error).encode()), ("origin", origin.encode())]
                            await txn.send(DEAD, record.value, key=record.key, headers=headers)
                        else:
                            await txn.send(CELSIUS, b"%.1f" % celsius, key=record.key)
                    await txn.send_offsets(consumer)
            except fencepost.AbortableError as error:
                print(f"aborted, the same readings come again: {error}")
            else:
                print(f"converted {len(batch)} readings", flush=True)


async def main(address: str) -> bool:
    """Whether each reading is in one of the two topics, once."""
    async with fencepost.Client(address, client_id="dead") as kafka:
        await prepare(kafka)
        await convert(kafka)
        readings, good, dead = [await read(kafka, topic) for topic in (READINGS, CELSIUS, DEAD)]
        print(f"{len(readings)} readings, {len(good)} converted, {len(dead)} dead letters")
        for name, value in dead[0].headers:
            print(f"  {name}: {value.decode() if value else value}")
        return Counter(r.key for r in readings) == Counter(r.key for r in (*good, *dead)) and len(dead) == COUNT // 50


if __name__ == "__main__":
    sys.exit(0 if trio.run(main, sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092") else 1)
