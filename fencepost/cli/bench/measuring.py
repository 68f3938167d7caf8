"""The loads of `fencepost bench`, and what they measure."""

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from fencepost.cli.progress import Advance

if TYPE_CHECKING:
    from fencepost.client import Client

CHUNK = 1000
"""Records that are handed in at once."""
PROBE_SECONDS = 0.01
"""Time between two records whose latency is measured."""
_MB = 1e6


class Result(NamedTuple):
    """What one load took."""

    done: int
    """Records, or transactions."""
    size_bytes: int
    """Of keys and values."""
    seconds: float
    latencies: list[float]
    """Seconds of single records or transactions, sorted."""

    def facts(self, what: str) -> dict[str, Any]:
        """The figures by name."""
        found: dict[str, Any] = {
            what: self.done,
            "seconds": round(self.seconds, 3),
            f"{what}_per_second": round(self.done / self.seconds, 1),
        }
        if self.size_bytes:
            found["mb_per_second"] = round(self.size_bytes / _MB / self.seconds, 2)
        for percent in (50, 99) if self.latencies else ():
            found[f"p{percent}_ms"] = round(self.percentile(percent) * 1000, 2)
        return found

    def percentile(self, percent: int) -> float:
        """The latency that `percent` percent do not exceed: the nearest rank."""
        rank = max(1, -(-len(self.latencies) * percent // 100))
        return self.latencies[rank - 1]


async def produce(kafka: "Client", topic: str, records: int, size_bytes: int, advance: Advance) -> Result:
    """Send records as fast as they are acknowledged; beside them some whose latency is measured."""
    value = bytes(size_bytes)
    latencies: list[float] = []
    async with kafka.producer() as producer:
        await producer.send(topic, value)  # connections and metadata are no part of the measurement
        began = time.perf_counter()
        async with trio.open_nursery() as nursery:

            async def probe() -> None:
                while True:
                    sent = time.perf_counter()
                    await producer.send(topic, value)
                    latencies.append(time.perf_counter() - sent)
                    await trio.sleep(PROBE_SECONDS)

            nursery.start_soon(probe)
            left = records
            async with producer.batch() as batch:
                while left:
                    count = min(CHUNK, left)
                    await batch.send_many(topic, [(None, value)] * count)
                    left -= count
                    advance(count)
            seconds = time.perf_counter() - began
            nursery.cancel_scope.cancel()
    sent = records + len(latencies)
    return Result(sent, sent * size_bytes, seconds, sorted(latencies))


async def consume(kafka: "Client", topic: str, records: int, advance: Advance) -> Result:
    """Read records from the beginning, up to their number or the end of the topic."""
    count = size_bytes = 0
    async with kafka.consumer(topic) as consumer:
        began = time.perf_counter()
        async for batch in consumer.read_to_end(max_records=10 * CHUNK):
            for _, run in batch.runs:
                count += len(run)
                size_bytes += sum(len(record.value or b"") + len(record.key or b"") for record in run)
            advance(len(batch))
            if count >= records:
                break
        seconds = time.perf_counter() - began
    return Result(count, size_bytes, seconds, [])


async def transact(
    kafka: "Client", topic: str, transactions: int, size: int, size_bytes: int, transactional_id: str, advance: Advance
) -> Result:
    """Commit transactions of `size` records, one after the other."""
    value = bytes(size_bytes)
    latencies = []
    async with kafka.transactional_producer(transactional_id) as producer:
        async with producer.transaction() as transaction:
            await transaction.send(topic, value)
        began = time.perf_counter()
        for _ in range(transactions):
            start = time.perf_counter()
            async with producer.transaction() as transaction:
                await transaction.send_many(topic, [(None, value)] * size)
            latencies.append(time.perf_counter() - start)
            advance(1)
        seconds = time.perf_counter() - began
    return Result(transactions, transactions * size * size_bytes, seconds, sorted(latencies))
