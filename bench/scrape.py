"""How long a scrape of the metrics keeps the event loop, and how long it takes, by the number of partitions.

    python -m bench.scrape [--partitions 10 1000 10000] [--rounds 20]

Rows of partitions are text that is made in pieces (fencepost/broker/metrics/partitions.py). Beside it the same rows by
prometheus_client, which makes an object of each.
"""

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import trio
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fencepost.broker.log.upkeep_failures import UpkeepFailures
from fencepost.broker.metrics.partitions import FAMILIES, _values, partition_text
from fencepost.protocol.topics import TopicPartition

TICK_SECONDS = 0.0005


class ByObjects(Collector):
    """The same families by prometheus_client."""

    def __init__(self, logs: list[Any]) -> None:
        self._logs = logs

    def collect(self) -> Iterator[Metric]:
        families = [GaugeMetricFamily(name, text, labels=("topic", "partition")) for name, text, _ in FAMILIES]
        for log in self._logs:
            for family, value in zip(families, _values(log), strict=True):
                family.add_metric((log.tp.topic, str(log.tp.partition)), value)
        yield from families


class Segments:
    """Of one log."""

    size_bytes = 1

    def __len__(self) -> int:
        return 1


def logs_of(count: int) -> list[Any]:
    """So many logs, with what a scrape reads of each."""
    return [
        SimpleNamespace(
            tp=TopicPartition("topic", number),
            log_start_offset=0,
            high_watermark=number,
            last_stable_offset=number,
            log_end_offset=number,
            offline=False,
            segments=Segments(),
        )
        for number in range(count)
    ]


async def longest_stall(work: Any) -> tuple[float, float]:
    """The longest time between two turns of another task while `work` runs, and the time of `work`, in ms."""
    gaps = [0.0]

    async def tick() -> None:
        last = time.perf_counter()
        while True:
            await trio.lowlevel.checkpoint()
            now = time.perf_counter()
            gaps.append(now - last)
            last = now

    async with trio.open_nursery() as nursery:
        nursery.start_soon(tick)
        await trio.sleep(TICK_SECONDS)
        gaps.clear()
        began = time.perf_counter()
        await work()
        seconds = time.perf_counter() - began
        await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    return max(gaps) * 1000, seconds * 1000


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.scrape", description=__doc__)
    parser.add_argument("--partitions", type=int, nargs="+", default=[10, 1000, 10_000], help="(10 1000 10000)")
    parser.add_argument("--rounds", type=int, default=20, help="measured scrapes of each (20)")
    arguments = parser.parse_args()
    for count in arguments.partitions:
        logs = logs_of(count)
        registry = CollectorRegistry()
        registry.register(ByObjects(logs))

        async def by_objects(registry: CollectorRegistry = registry) -> None:
            generate_latest(registry)
            await trio.lowlevel.checkpoint()

        async def by_text(logs: list[Any] = logs) -> None:
            await partition_text(logs, UpkeepFailures())

        for name, work in (("text in pieces", by_text), ("prometheus_client", by_objects)):
            measured = [trio.run(longest_stall, work) for _ in range(arguments.rounds)]
            row: dict[str, Any] = {"row": name, "partitions": count}
            row["stall_ms"] = round(statistics.median(one[0] for one in measured), 2)
            row["scrape_ms"] = round(statistics.median(one[1] for one in measured), 2)
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
