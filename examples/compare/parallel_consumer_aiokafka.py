"""Process keys in parallel with aiokafka, as examples/parallel_consumer.py does: python parallel_consumer_aiokafka.py

The records of one key are processed one after the other, different keys at the same time. The position is committed
when the whole batch is done, so a kill repeats records at most and skips none.
"""

import asyncio
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Iterable

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

TOPIC, GROUP, CUSTOMERS, EACH, AT_ONCE = "aiokafka-parallel-clicks", "aiokafka-parallel", 20, 30, 8
WORK_SECONDS = 0.005


class BatchFirst(ConsumerRebalanceListener):
    """Lets a rebalance wait for the batch in hand: aiokafka rebalances in the background."""

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


async def write_clicks(address: str) -> list[bytes]:
    """Write numbered clicks of customers that no earlier run had; return their keys."""
    run = uuid.uuid4().hex[:8]
    keys = [f"customer-{run}-{number}".encode() for number in range(CUSTOMERS)]
    admin = AIOKafkaAdminClient(bootstrap_servers=address)
    try:
        await admin.start()
        await admin.create_topics([NewTopic(TOPIC, 3, 1)])
    finally:
        await admin.close()
    async with AIOKafkaProducer(bootstrap_servers=address, enable_idempotence=True) as producer:
        sent = [await producer.send(TOPIC, b"%d" % number, key=key) for number in range(EACH) for key in keys]
        await asyncio.gather(*sent)
    return keys


async def process(address: str) -> dict[bytes, list[int]]:
    """What was processed for each customer, in this order."""
    processed: dict[bytes, list[int]] = defaultdict(list)
    slots, busy = asyncio.Semaphore(AT_ONCE), asyncio.Lock()

    async def process_one_key(key: bytes, clicks: list[int]) -> None:
        async with slots:
            for click in clicks:
                await asyncio.sleep(WORK_SECONDS)  # a call to some service
                processed[key].append(click)

    consumer = AIOKafkaConsumer(
        bootstrap_servers=address,
        group_id=GROUP,
        group_instance_id="parallel-1",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    consumer.subscribe([TOPIC], listener=BatchFirst(busy))
    async with consumer:
        while (batch := await consumer.getmany(timeout_ms=200, max_records=200)) or not await at_end(consumer):
            if not batch:
                continue
            async with busy:
                by_key: dict[bytes, list[int]] = defaultdict(list)
                for record in (record for records in batch.values() for record in records):
                    by_key[record.key].append(int(record.value))
                async with asyncio.TaskGroup() as tasks:
                    for key, clicks in by_key.items():
                        tasks.create_task(process_one_key(key, clicks))
                await consumer.commit()  # only now: no record of the batch is left
                print(f"processed {sum(map(len, batch.values()))} clicks", flush=True)
    return processed


async def main(address: str) -> bool:
    """Whether all clicks of this run, and those that a killed run left, were processed in order."""
    keys = await write_clicks(address)
    begin = time.monotonic()
    processed = await process(address)
    seconds = time.monotonic() - begin
    clicks = sum(map(len, processed.values()))
    in_order = [key for key, done in processed.items() if done == list(range(done[0], done[0] + len(done)))]
    print(f"{clicks} clicks in {seconds:.1f} s, one after the other at least {clicks * WORK_SECONDS:.1f} s")
    print(f"{len(in_order)} of {len(processed)} customers in order")
    return len(in_order) == len(processed) and all(len(processed[key]) == EACH for key in keys)


if __name__ == "__main__":
    sys.exit(0 if asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092")) else 1)
