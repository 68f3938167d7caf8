"""Set bad records aside with aiokafka, as examples/dead_letter.py does: python dead_letter_aiokafka.py 127.0.0.1:9092

Results, dead letters and the position are one transaction: each record is in one of the two topics, once.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, ProducerFenced

READINGS, CELSIUS, DEAD, COUNT = "aiokafka-dead-readings", "aiokafka-dead-celsius", "aiokafka-dead-letters", 600


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


async def read(address: str, topic: str) -> list[ConsumerRecord]:
    """All committed records."""
    found = []
    async with AIOKafkaConsumer(
        topic, bootstrap_servers=address, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        while (batch := await consumer.getmany(timeout_ms=200)) or not await at_end(consumer):
            found += [record for records in batch.values() for record in records]
    return found


async def prepare(address: str) -> None:
    """Write readings in Fahrenheit, some of them damaged, unless an earlier run did."""
    admin = AIOKafkaAdminClient(bootstrap_servers=address)
    try:
        await admin.start()
        await admin.create_topics([NewTopic(topic, 2, 1) for topic in (READINGS, CELSIUS, DEAD)])
    finally:
        await admin.close()
    async with AIOKafkaProducer(bootstrap_servers=address, transactional_id=READINGS) as producer:
        if not await read(address, READINGS):
            async with producer.transaction():
                values = (b"#?!" if n % 50 == 7 else b"%d" % (n % 100) for n in range(COUNT))
                pairs = [(b"reading-%d" % n, value) for n, value in enumerate(values)]
                await asyncio.gather(*[await producer.send(READINGS, value, key=key) for key, value in pairs])


async def convert_one(producer: AIOKafkaProducer, record: ConsumerRecord) -> asyncio.Future[Any]:
    """Send the result, or the record to the dead letters."""
    try:
        celsius = (int(record.value) - 32) * 5 / 9
    except ValueError as error:
        origin = f"{record.topic}-{record.partition}@{record.offset}"
        headers = [("error", str(error).encode()), ("origin", origin.encode())]
        return await producer.send(DEAD, record.value, key=record.key, headers=headers)
    return await producer.send(CELSIUS, b"%.1f" % celsius, key=record.key)


async def convert(address: str) -> None:
    """Convert the readings that are left, 20 in a transaction."""
    busy = asyncio.Lock()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=address,
        group_id="aiokafka-dead",
        group_instance_id="dead-1",  # a restarted program takes its predecessor's partitions at once
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    consumer.subscribe([READINGS], listener=TransactionsFirst(busy))
    # The producer first: it aborts what a killed predecessor left open.
    async with AIOKafkaProducer(bootstrap_servers=address, transactional_id="aiokafka-dead-1") as producer, consumer:
        while (batch := await consumer.getmany(timeout_ms=200, max_records=20)) or not await at_end(consumer):
            if not batch:
                continue
            async with busy:
                try:
                    async with producer.transaction():
                        readings = [record for records in batch.values() for record in records]
                        sent = [await convert_one(producer, reading) for reading in readings]
                        await asyncio.gather(*sent)  # a commit does not look whether records failed
                        positions = {partition: records[-1].offset + 1 for partition, records in batch.items()}
                        await producer.send_offsets_to_transaction(positions, "aiokafka-dead")
                except ProducerFenced:
                    raise
                except KafkaError as error:
                    print(f"aborted, the same readings come again: {error}")
                    for partition, records in batch.items():
                        consumer.seek(partition, records[0].offset)
                else:
                    print(f"converted {len(readings)} readings", flush=True)


async def main(address: str) -> bool:
    """Whether each reading is in one of the two topics, once."""
    await prepare(address)
    await convert(address)
    readings, good, dead = [await read(address, topic) for topic in (READINGS, CELSIUS, DEAD)]
    print(f"{len(readings)} readings, {len(good)} converted, {len(dead)} dead letters")
    for name, value in dead[0].headers:
        print(f"  {name}: {value.decode()}")
    return Counter(r.key for r in readings) == Counter(r.key for r in (*good, *dead)) and len(dead) == COUNT // 50


if __name__ == "__main__":
    sys.exit(0 if asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092")) else 1)
