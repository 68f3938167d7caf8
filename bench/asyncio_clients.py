"""fencepost's client under asyncio and under trio, beside aiokafka: latency and CPU per record, against one broker.

`python -m bench.asyncio_clients` starts the broker itself. Each client has a process of its own; CPU is that process's.
"""

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any

import aiokafka
import trio

import fencepost
from bench.target import OwnBroker

TOPIC = "bench"
VALUE = bytes(100)
WARM_UP = 50
ALONE, TOGETHER, TASKS, TRANSACTIONS, PER_TRANSACTION, READ = 3_000, 30_000, 100, 500, 10, 60_000
Call = Callable[[], Awaitable[Any]]
Gather = Callable[[Callable[[int], Coroutine[Any, Any, None]], int, int], Awaitable[None]]


class Meter:
    """Prints a line for each measurement of one client."""

    def __init__(self, name: str, gather: Gather) -> None:
        self._name, self._gather = name, gather

    async def calls(self, what: str, call: Call, count: int, tasks: int = 1) -> None:
        """`count` calls by so many tasks at once, each of which awaits its own."""
        each: list[float] = []

        async def work(share: int) -> None:
            for _ in range(share):
                began = time.perf_counter()
                await call()
                each.append(time.perf_counter() - began)

        await work(WARM_UP)
        each.clear()
        cpu, began = time.process_time(), time.perf_counter()
        await self._gather(work, count // tasks, tasks)
        self.line(what, len(each), time.perf_counter() - began, time.process_time() - cpu, each)

    async def batches(self, batches: AsyncIterable[Iterable[Any]]) -> None:
        """Read half of the records in batches, and look at each record."""
        seen, cpu, began = 0, time.process_time(), time.perf_counter()
        async for batch in batches:
            seen += sum(1 for record in batch if record.value)
            if seen >= READ // 2:
                break
        self.line("read, batches of 500", seen, time.perf_counter() - began, time.process_time() - cpu)

    async def records(self, consumer: AsyncIterable[Any]) -> None:
        """Read half of the records one by one."""
        seen, cpu, began = 0, time.process_time(), time.perf_counter()
        async for _ in consumer:
            seen += 1
            if seen >= READ // 2:
                break
        self.line("read, one by one", seen, time.perf_counter() - began, time.process_time() - cpu)

    def line(self, what: str, count: int, seconds: float, cpu: float, each: list[float] | None = None) -> None:
        """One measurement: calls or records per second, CPU for each of them, and how long each took."""
        each = sorted(each or [])
        at = [f"{each[int(len(each) * share)] * 1e6:7.0f}" for share in (0.5, 0.99)] if each else ["", ""]
        print(
            f"{self._name:20} {what:22} {count / seconds:9.0f}/s {cpu / count * 1e6:8.1f} {at[0]:>8} {at[1]:>8}",
            flush=True,
        )


async def by_asyncio(work: Callable[[int], Coroutine[Any, Any, None]], share: int, tasks: int) -> None:
    """Run tasks of asyncio."""
    await asyncio.gather(*(work(share) for _ in range(tasks)))


async def by_trio(work: Callable[[int], Coroutine[Any, Any, None]], share: int, tasks: int) -> None:
    """Run tasks of trio."""
    async with trio.open_nursery() as nursery:
        for _ in range(tasks):
            nursery.start_soon(work, share)


async def own(address: str, meter: Meter) -> None:
    """fencepost's client, under the loop that runs this."""
    async with fencepost.Client(address) as kafka:
        async with kafka.admin() as admin:
            await admin.create_topics(TOPIC, if_not_exists=True)
        async with kafka.producer() as producer:
            await meter.calls("send, one task", lambda: producer.send(TOPIC, VALUE), ALONE)
            await meter.calls("send, 100 tasks", lambda: producer.send(TOPIC, VALUE), TOGETHER, TASKS)
        async with kafka.transactional_producer(f"bench-{time.time_ns()}") as sender:

            async def transaction() -> None:
                async with sender.transaction() as txn:
                    for _ in range(PER_TRANSACTION):
                        await txn.send(TOPIC, VALUE)

            await meter.calls("transaction of 10", transaction, TRANSACTIONS)
        async with kafka.consumer(TOPIC) as consumer:
            await meter.batches(consumer.batches(500))
        async with kafka.consumer(TOPIC) as consumer:
            await meter.records(consumer)


async def theirs(address: str, meter: Meter) -> None:
    """aiokafka, without linger, as fencepost's `send`."""
    options: dict[str, Any] = {"bootstrap_servers": address, "linger_ms": 0}
    async with aiokafka.AIOKafkaProducer(enable_idempotence=True, **options) as producer:
        await meter.calls("send, one task", lambda: producer.send_and_wait(TOPIC, VALUE), ALONE)
        await meter.calls("send, 100 tasks", lambda: producer.send_and_wait(TOPIC, VALUE), TOGETHER, TASKS)
    async with aiokafka.AIOKafkaProducer(transactional_id=f"bench-{time.time_ns()}", **options) as sender:

        async def transaction() -> None:
            async with sender.transaction():
                for _ in range(PER_TRANSACTION):
                    await sender.send(TOPIC, VALUE)

        await meter.calls("transaction of 10", transaction, TRANSACTIONS)
    reading: dict[str, Any] = {
        "bootstrap_servers": address,
        "isolation_level": "read_committed",
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
    }
    async with aiokafka.AIOKafkaConsumer(TOPIC, **reading) as consumer:
        await meter.batches(their_batches(consumer))
    async with aiokafka.AIOKafkaConsumer(TOPIC, **reading) as consumer:
        await meter.records(consumer)


async def their_batches(consumer: aiokafka.AIOKafkaConsumer) -> AsyncIterator[Iterable[Any]]:
    """What aiokafka returns of one partition at a time."""
    while True:
        for messages in (await consumer.getmany(timeout_ms=1000, max_records=500)).values():
            yield messages


def measure(name: str, address: str) -> None:
    """Measure one client in this process."""
    match name:
        case "trio":
            trio.run(own, address, Meter("fencepost, trio", by_trio))
        case "asyncio":
            asyncio.run(own(address, Meter("fencepost, asyncio", by_asyncio)))
        case "aiokafka":
            asyncio.run(theirs(address, Meter("aiokafka", by_asyncio)))


def main() -> None:
    """Start a broker, and let each client have its turn."""
    print(f"{'client':20} {'what':22} {'rate':>11} {'CPU us':>8} {'p50 us':>8} {'p99 us':>8}", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        broker = OwnBroker("fencepost", Path(directory), "os")
        broker.start()
        try:
            for name in ("trio", "asyncio", "aiokafka"):
                subprocess.run([sys.executable, "-m", "bench.asyncio_clients", name, broker.address], check=True)
        finally:
            broker.stop()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure(*sys.argv[1:])
    else:
        main()
