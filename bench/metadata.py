"""What many topics cost: to create, to keep, to ask for, and to start with.

    python -m bench.metadata [--topics 10000] [--partitions 3] [--million]
        [--kafka HOST:PORT --kafka-start COMMAND --kafka-stop COMMAND --kafka-pid-file FILE]

Starts a fencepost on a fresh directory, creates the topics, asks for the metadata of all and of one, ends it, and
starts it again; the same with a Kafka where commands are given that start one (on a directory that they know, fresh at
the first start) and end it. All requests go over one socket and their answers are counted, not decoded, so that no
client stands in the way.
"""

import argparse
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.pour import Pipe, framed
from bench.report import Measured, circumstances, table, write
from bench.target import OwnBroker, Target
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.headers import read_response_header
from fencepost.protocol.messages.api03_metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.messages.api19_create_topics import CreatableTopic, CreateTopicsRequest
from fencepost.protocol.registry import API_BY_KEY

OUT = Path(__file__).parent / "out"
METADATA_VERSION, CREATE_TOPICS_VERSION = 12, 7
ASKED = 15
MILLION = 1_000_000


class Life:
    """A broker that can be ended and started again on its data."""

    def __init__(self, target: Target, start: Callable[[], None], stop: Callable[[], None]) -> None:
        self.target = target
        self.start = start
        self.stop = stop


class SameDirectory(OwnBroker):
    """A fencepost that keeps its data over its starts."""

    def start(self) -> None:
        """Start on the directory of the last start; return when the ready line was read."""
        self.start_on(self._directory / "data")


def main() -> int:
    """Run it."""
    options = parse_options()
    measured: list[Measured] = []
    with tempfile.TemporaryDirectory(prefix="bench-metadata-") as scratch:
        own = SameDirectory("fencepost", Path(scratch), "os")
        lives = [Life(own, own.start, own.stop)]
        if options.kafka_start:
            lives.append(kafka_life(options))
        for life in lives:
            measured += measure(life, options)
    text = table(measured, [("fencepost", "Kafka")])
    print(text)
    print(circumstances(" ".join(sys.argv)))
    print(write(OUT, measured, text, "metadata-"))
    return 0


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.metadata", description=__doc__.partition("\n")[0])
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--partitions", type=int, default=3)
    parser.add_argument("--per-request", type=int, default=100, help="topics in one CreateTopics")
    parser.add_argument("--singly", type=int, default=500, help="so many more topics, each in a request of its own")
    parser.add_argument("--million", action="store_true", help="also one topic of a million partitions; fencepost only")
    parser.add_argument("--kafka", metavar="HOST:PORT", help="where the Kafka listens that is started")
    parser.add_argument("--kafka-start", metavar="COMMAND", help="returns when it can be used")
    parser.add_argument("--kafka-stop", metavar="COMMAND")
    parser.add_argument("--kafka-pid-file", metavar="FILE", type=Path)
    return parser.parse_args()


def kafka_life(options: argparse.Namespace) -> Life:
    """A Kafka that two commands start and end."""
    target = Target("Kafka", options.kafka)

    def start() -> None:
        subprocess.run(shlex.split(options.kafka_start), check=True, stdout=subprocess.DEVNULL)
        target.pid = int(options.kafka_pid_file.read_text())

    def stop() -> None:
        subprocess.run(shlex.split(options.kafka_stop), check=True, stdout=subprocess.DEVNULL)

    return Life(target, start, stop)


def measure(life: Life, options: argparse.Namespace) -> list[Measured]:
    """One broker through all of it."""
    target, found = life.target, list[Measured]()
    size = f"{options.topics:,} topics of {options.partitions} partitions"

    def note(case: str, metric: str, value: float | None) -> None:
        if value is not None:
            print(f"{case:<46} {target.name:<10} {value:,.4g} {metric}", flush=True)
            found.append(Measured(case, metric, target.name, value))

    life.start()
    pipe = Pipe(target.address)
    names = [f"bench-{number:06d}" for number in range(options.topics)]
    cpu, began = target.cpu_seconds() or 0, time.perf_counter()
    for start in range(0, len(names), options.per_request):
        create(pipe, names[start : start + options.per_request], options.partitions)
    note(f"create {size}, {options.per_request} a request", "s", time.perf_counter() - began)
    note(f"create {size}, {options.per_request} a request", "broker CPU s", (target.cpu_seconds() or 0) - cpu)
    began = time.perf_counter()
    for number in range(options.singly):
        create(pipe, [f"single-{number:06d}"], options.partitions)
    note("create one more topic, one a request", "ms", 1000 * (time.perf_counter() - began) / max(options.singly, 1))
    note(f"keep {size}", "MB RSS", (target.rss_bytes() or 0) / 1e6)
    ask(pipe, None, lambda *values: note("Metadata of all topics", *values), target)
    ask(pipe, names[:1], lambda *values: note("Metadata of one topic", *values), target)
    if options.million and isinstance(target, OwnBroker):
        began = time.perf_counter()
        create(pipe, ["million"], MILLION)
        note("create a topic of a million partitions", "s", time.perf_counter() - began)
    pipe.socket.close()
    life.stop()
    began = time.perf_counter()
    life.start()
    pipe = Pipe(target.address)
    answer = decoded(ApiKey.METADATA, METADATA_VERSION, exchange(pipe, metadata_of(None)))
    note(f"start with {size}", "s to all metadata", time.perf_counter() - began)
    note(f"start with {size}", "broker CPU s", target.cpu_seconds())
    there = {topic.name for topic in answer.topics}
    if not there.issuperset(names):
        raise RuntimeError(f"{target.name} has lost topics")
    note(f"start with {size}", "MB RSS", (target.rss_bytes() or 0) / 1e6)
    pipe.socket.close()
    life.stop()
    return found


def create(pipe: Pipe, names: list[str], partitions: int) -> None:
    """Create topics in one request; all of them must be new."""
    topics = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
    request = CreateTopicsRequest(topics=topics, timeout_ms=600_000)
    frame = framed(ApiKey.CREATE_TOPICS, CREATE_TOPICS_VERSION, request)
    answer = decoded(ApiKey.CREATE_TOPICS, CREATE_TOPICS_VERSION, exchange(pipe, frame))
    refused = [(topic.name, topic.error_code, topic.error_message) for topic in answer.topics if topic.error_code]
    if refused:
        raise RuntimeError(f"{refused[0]}")


def metadata_of(names: list[str] | None) -> bytes:
    """A Metadata request for these topics, or for all."""
    topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    return framed(ApiKey.METADATA, METADATA_VERSION, MetadataRequest(topics=topics, allow_auto_topic_creation=False))


def exchange(pipe: Pipe, frame: bytes) -> bytearray:
    """Send a request; the bytes of its answer."""
    pipe.socket.sendall(frame)
    size = int.from_bytes(received(pipe, 4), "big")
    return received(pipe, size)


def received(pipe: Pipe, size: int) -> bytearray:
    """Exactly so many bytes."""
    data, at = bytearray(size), 0
    with memoryview(data) as view:
        while at < size:
            count = pipe.socket.recv_into(view[at:])
            if not count:
                raise ConnectionError("the broker closed the connection")
            at += count
    return data


def decoded(api_key: int, version: int, body: bytearray) -> Any:
    """An answer as a value."""
    api = API_BY_KEY[api_key]
    _, start = read_response_header(api, version, body)
    return api.response.decode(body, version, start)


def ask(pipe: Pipe, names: list[str] | None, note: Callable[[str, float | None], None], target: Target) -> None:
    """Metadata again and again; the medians."""
    frame = metadata_of(names)
    seconds, cpus = [], []
    for _ in range(ASKED if names is None else 40 * ASKED):
        cpu, began = target.cpu_seconds() or 0, time.perf_counter()
        exchange(pipe, frame)
        seconds.append(time.perf_counter() - began)
        cpus.append((target.cpu_seconds() or 0) - cpu)
    note("ms", 1000 * statistics.median(seconds))
    note("broker CPU ms", 1000 * statistics.median(cpus))


if __name__ == "__main__":
    sys.exit(main())
