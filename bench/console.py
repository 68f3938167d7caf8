"""What the console in a broker's process costs: the memory, the first page, and the broker's latency with open tails.

    python -m bench.console [--partitions 10000] [--tails 5] [--seconds 10] [--rounds 5]

Brokers with and without a console take turns with the same load: one producer that waits for each acknowledgement
while another sends 500 records a second to the topic that the tails follow.
"""

import argparse
import http.client
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psutil
from confluent_kafka import Producer

from tests.kit.broker_process import BrokerProcess
from tests.kit.console import Visitor
from tests.kit.wire import Wire, batch_of

BACKGROUND_PER_SECOND = 500
RECORD = b"x" * 100


@contextmanager
def running(folder: Path, *arguments: str) -> Iterator[BrokerProcess]:
    """A broker with files."""
    with BrokerProcess(folder, data_dir=folder / "data", arguments=arguments) as broker:
        yield broker


def create_topics(broker: BrokerProcess, partitions: int) -> None:
    """Topics of 100 partitions each."""
    with Wire(broker.connect()) as wire:
        wire.create_topic("measured")
        wire.create_topic("followed")
        for number in range(partitions // 100):
            wire.create_topic(f"many-{number:03}", partitions=100)


def page_ms(url: str, path: str, rounds: int) -> list[float]:
    """How long a page takes, each over a new connection, without the first one."""
    parts, times = urlsplit(url), []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 0, timeout=60)
        connection.request("GET", path)
        assert connection.getresponse().read()
        times.append((time.perf_counter() - began) * 1000)
        connection.close()
    return times[1:]


def memory_mib(broker: BrokerProcess) -> float:
    return psutil.Process(broker.pid).memory_info().rss / (1 << 20)


def large_cluster(folder: Path, partitions: int, rounds: int) -> None:
    """The memory and the pages of a broker with many partitions."""
    with running(folder / "without") as broker:
        create_topics(broker, partitions)
        without = memory_mib(broker)
    with running(folder / "with", "--console", "127.0.0.1:0") as broker:
        create_topics(broker, partitions)
        url = broker.facts["console"]
        first = page_ms(url, "/", 1)
        print_row("first page", partitions=partitions, ms=first[0])
        visitor = Visitor(url)
        visitor.get("/")
        began = time.perf_counter()
        next(visitor.events("/live/"))
        print_row("its counts, after the refresh begins", ms=(time.perf_counter() - began - 2) * 1000)
        for path in ("/", "/topics", "/topics?q=42", "/topics/many-001", "/topics/many-001/0"):
            print_row(f"page {path}", ms=statistics.median(page_ms(url, path, rounds)))
        with_console = memory_mib(broker)
        print_row("memory", without_mib=without, with_mib=with_console, more_mib=with_console - without)


def small_cluster(folder: Path) -> None:
    """The memory of a broker with one topic, after some pages."""
    with running(folder / "small") as broker:
        create_topics(broker, 0)
        without = memory_mib(broker)
    with running(folder / "small-console", "--console", "127.0.0.1:0") as broker:
        create_topics(broker, 0)
        for path in ("/", "/topics", "/topics/measured", "/topics/measured/0", "/transactions", "/groups", "/audit"):
            page_ms(broker.facts["console"], path, 2)
        print_row(
            "memory, one topic", without_mib=without, with_mib=memory_mib(broker), more_mib=memory_mib(broker) - without
        )


def latencies(broker: BrokerProcess, seconds: float) -> list[float]:
    """How long each acknowledgement of single records takes, in ms, beside a steady producer."""
    stop = threading.Event()

    def steady() -> None:
        producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 5})
        due = time.monotonic()
        while not stop.is_set():
            producer.produce("followed", RECORD)
            producer.poll(0)
            due += 1 / BACKGROUND_PER_SECOND
            time.sleep(max(0.0, due - time.monotonic()))
        producer.flush(10)

    background = threading.Thread(target=steady)
    background.start()
    found = []
    with Wire(broker.connect()) as wire:
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            began = time.perf_counter()
            wire.produce("measured", batch_of(RECORD))
            found.append((time.perf_counter() - began) * 1000)
            time.sleep(0.002)
    stop.set()
    background.join()
    return found


def with_tails(folder: Path, tails: int, seconds: float, rounds: int) -> None:
    """The latency of a produce request without and with open tails, in turns."""
    percentiles: dict[int, list[tuple[float, float]]] = {0: [], tails: []}
    with running(folder / "tailed", "--console", "127.0.0.1:0") as broker:
        create_topics(broker, 0)
        for _ in range(rounds):
            for count in (0, tails):
                stop = threading.Event()
                readers = [threading.Thread(target=follow, args=(broker.facts["console"], stop)) for _ in range(count)]
                for reader in readers:
                    reader.start()
                time.sleep(1)
                found = sorted(latencies(broker, seconds))
                percentiles[count].append((found[len(found) // 2], found[len(found) * 99 // 100]))
                stop.set()
                for reader in readers:
                    reader.join()
    for count, measured in percentiles.items():
        medians = [statistics.median(column) for column in zip(*measured, strict=True)]
        print_row(f"produce with {count} tails", p50_ms=medians[0], p99_ms=medians[1])
    ratios = [b[1] / a[1] for a, b in zip(percentiles[0], percentiles[tails], strict=True)]
    print_row("p99 with tails / without", ratio=statistics.median(ratios), lowest=min(ratios), highest=max(ratios))


def follow(url: str, stop: threading.Event) -> None:
    """Read a live tail until `stop`."""
    visitor = Visitor(url)
    visitor.get("/")
    events = visitor.events("/live-tail/followed?isolation=read_uncommitted")
    while not stop.is_set():
        next(events)
    events.close()


def print_row(name: str, **values: float) -> None:
    print(json.dumps({"row": name, **{key: round(value, 2) for key, value in values.items()}}), flush=True)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.console", description=__doc__)
    parser.add_argument("--partitions", type=int, default=10_000, help="of the large cluster (10000)")
    parser.add_argument("--tails", type=int, default=5, help="open live tails (5)")
    parser.add_argument("--seconds", type=float, default=10, help="of each measurement of latency (10)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds in turns (5)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        small_cluster(folder)
        with_tails(folder, arguments.tails, arguments.seconds, arguments.rounds)
        large_cluster(folder, arguments.partitions, arguments.rounds)


if __name__ == "__main__":
    main()
