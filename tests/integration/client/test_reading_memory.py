"""What a consumer takes of memory while its program is slow: by the process's own accounting, and by the kernel's."""

import sys
import textwrap
from pathlib import Path

import trio

import fencepost

ROOT = Path(__file__).parents[3]
PARTITIONS, PER_PARTITION, VALUE_BYTES = 8, 8 << 20, 10_000
BUDGET, SLACK = 8 << 20, 12 << 20
"""Slack: what the interpreter and its allocator take for whole answers of 1 MiB that come and go."""

READER = textwrap.dedent(
    """
    import sys, trio, fencepost

    def resident():
        for line in open("/proc/self/status"):
            if line.startswith("VmRSS"):
                return int(line.split()[1]) * 1024

    async def main(address, topic, budget):
        async with fencepost.Client(address) as kafka:
            async with kafka.consumer(topic, queued_max_bytes=1024, max_partition_fetch_bytes=1024) as warm:
                async for batch in warm.batches(1):
                    break
            before = resident()
            async with kafka.consumer(topic, queued_max_bytes=int(budget)) as consumer:
                with trio.fail_after(100):
                    while consumer.metrics().queued_bytes <= int(budget) // 2:
                        await trio.sleep(0.05)
                await trio.sleep(1.0)
                idle, queued = resident(), consumer.metrics().queued_bytes
                count = most = 0
                async for batch in consumer.batches(50):
                    count += len(batch)
                    most = max(most, resident())
                    if count == int(sys.argv[4]):
                        break
                peak = consumer.metrics().queued_bytes_max
                print(idle - before, most - before, int(queued), int(peak))

    trio.run(main, *sys.argv[1:4])
    """
)


async def test_a_slow_program_holds_its_budget_and_no_more(address: str, name: str) -> None:
    """64 MiB wait at the broker; with a budget of 8 MiB never more than that is held, and all of it is read."""
    count = PARTITIONS * PER_PARTITION // VALUE_BYTES
    async with fencepost.Client(address) as kafka:
        async with kafka.admin() as admin:
            await admin.create_topics(name, partitions=PARTITIONS)
        async with kafka.producer() as producer, producer.batch() as batch:
            value = bytes(VALUE_BYTES)
            for number in range(count):
                await batch.send(name, value, partition=number % PARTITIONS)
    words = [sys.executable, "-c", READER, address, name, str(BUDGET), str(count)]
    run = await trio.run_process(words, capture_stdout=True, capture_stderr=True, check=False, cwd=ROOT)
    assert run.returncode == 0, run.stderr.decode()
    idle, most, queued, peak = map(int, run.stdout.split())
    assert BUDGET // 2 < queued <= BUDGET
    assert peak <= BUDGET + (1 << 20)
    assert idle <= BUDGET + SLACK, f"{idle} bytes more for {queued} bytes that wait"
    assert most <= BUDGET + SLACK, f"{most} bytes more while reading"
