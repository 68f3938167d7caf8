"""Process many keys at once, each key in order: python examples/parallel_consumer.py 127.0.0.1:9092

A batch is divided by key. The records of one key are processed one after the other, different keys at the same time.
The position is committed when the whole batch is done, so a kill repeats records at most and skips none.
"""

import asyncio
import sys
import time
import uuid
from collections import defaultdict

import fencepost

TOPIC, GROUP, CUSTOMERS, EACH, AT_ONCE = "parallel-clicks", "parallel", 20, 30, 8
WORK_SECONDS = 0.005


async def write_clicks(kafka: fencepost.Client) -> list[bytes]:
    """Write numbered clicks of customers that no earlier run had; return their keys."""
    run = uuid.uuid4().hex[:8]
    keys = [f"customer-{run}-{number}".encode() for number in range(CUSTOMERS)]
    async with kafka.admin() as admin:
        await admin.create_topics(TOPIC, partitions=3, if_not_exists=True)
    async with kafka.producer() as producer:
        await producer.send_many(TOPIC, ((key, b"%d" % number) for number in range(EACH) for key in keys))
    return keys


async def process(kafka: fencepost.Client) -> dict[bytes, list[int]]:
    """What was processed for each customer, in this order."""
    processed: dict[bytes, list[int]] = defaultdict(list)
    slots = asyncio.Semaphore(AT_ONCE)

    async def process_one_key(key: bytes, clicks: list[int]) -> None:
        async with slots:
            for click in clicks:
                await asyncio.sleep(WORK_SECONDS)  # a call to some service
                processed[key].append(click)

    async with kafka.consumer(TOPIC, group=GROUP, group_instance_id="parallel-1") as consumer:
        async for batch in consumer.read_to_end(max_records=200):
            by_key: dict[bytes, list[int]] = defaultdict(list)
            for record in batch:
                by_key[record.key or b""].append(int(record.value or b""))
            async with asyncio.TaskGroup() as tasks:
                for key, clicks in by_key.items():
                    tasks.create_task(process_one_key(key, clicks))
            await consumer.commit()  # only now: no record of the batch is left
            print(f"processed {len(batch)} clicks", flush=True)
    return processed


async def main(address: str) -> bool:
    """Whether all clicks of this run, and those that a killed run left, were processed in order."""
    async with fencepost.Client(address, client_id="parallel") as kafka:
        keys = await write_clicks(kafka)
        begin = time.monotonic()
        processed = await process(kafka)
        seconds = time.monotonic() - begin
    clicks = sum(map(len, processed.values()))
    in_order = [key for key, done in processed.items() if done == list(range(done[0], done[0] + len(done)))]
    print(f"{clicks} clicks in {seconds:.1f} s, one after the other at least {clicks * WORK_SECONDS:.1f} s")
    print(f"{len(in_order)} of {len(processed)} customers in order")
    return len(in_order) == len(processed) and all(len(processed[key]) == EACH for key in keys)


if __name__ == "__main__":
    sys.exit(0 if asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092")) else 1)
