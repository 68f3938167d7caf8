"""`python -m bench.clients`: Python clients of Kafka side by side on one broker; table and figures to bench/out."""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from bench.clients.job import PER_TRANSACTION, WARM_UP_TRANSACTIONS, Job
from bench.clients.one import CLIENTS
from bench.report import Measured, circumstances, table, write
from bench.target import OwnBroker
from bench.workers import create_topic, delete_topic

OUT = Path(__file__).parents[1] / "out"
RUN_TIMEOUT_SECONDS = 300
OURS = ("fencepost", "fencepost-pure")
WITH_COMPILED = {"FENCEPOST_PURE": None}
WITHOUT_COMPILED = {"FENCEPOST_PURE": "1"}


class Case(NamedTuple):
    """A row of the table. `filled` is how many records per transaction the topic was filled with before; 0: none."""

    name: str
    mode: str
    size_bytes: int
    count: int
    filled: int = 0
    only_ours: bool = False
    beside: str = ""
    """The case whose figures of the other clients stand in the table for comparison."""


CASES = [
    Case("produce 100 B", "produce", 100, 100_000),
    Case("produce 100 B, send_many", "produce_many", 100, 100_000, only_ours=True, beside="produce 100 B"),
    Case("produce 1 KiB", "produce", 1024, 40_000),
    Case("produce 1 KiB, send_many", "produce_many", 1024, 40_000, only_ours=True, beside="produce 1 KiB"),
    Case("consume 100 B, batches", "batches", 100, 400_000, filled=1),
    Case("consume 100 B, arrow", "arrow", 100, 400_000, filled=1, only_ours=True, beside="consume 100 B, batches"),
    Case("consume 1 KiB, batches", "batches", 1024, 200_000, filled=1),
    Case("consume 1 KiB, arrow", "arrow", 1024, 200_000, filled=1, only_ours=True, beside="consume 1 KiB, batches"),
    Case("consume 100 B, one at a time", "one_by_one", 100, 100_000, filled=1),
    Case("consume 100 B, batches, a tenth aborted", "batches", 100, 50_000, filled=100),
    Case("transactions of 10 x 100 B in sequence", "transactions", 100, 300),
    Case("read, write, send offsets, commit: 10 x 100 B", "etl", 100, 200, filled=1),
]


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.clients", description=__doc__)
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="any broker; without it a fencepost is started")
    parser.add_argument("--durability", default="os", choices=["os", "fsync"], help="of the broker that is started")
    parser.add_argument("--clients", default=",".join(CLIENTS), help="default %(default)s")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each; the order turns round each time")
    parser.add_argument("--scale", type=float, default=1.0, help="share of each case's load")
    return parser.parse_args()


@contextmanager
def broker(options: argparse.Namespace) -> Iterator[str]:
    """The address of the broker that was named, or of one of our own."""
    if options.bootstrap:
        yield options.bootstrap
        return
    with tempfile.TemporaryDirectory(prefix="fencepost-clients-") as directory:
        own = OwnBroker("broker", Path(directory), options.durability)
        own.start()
        try:
            yield own.address
        finally:
            own.stop()


def run_one(client: str, job: Job) -> dict[str, Any] | None:
    """One client's run in a process of its own; None where it has no such thing."""
    changes = WITHOUT_COMPILED if client == "fencepost-pure" else WITH_COMPILED
    environment = {name: value for name, value in (os.environ | changes).items() if value is not None}
    command = [sys.executable, "-m", "bench.clients.one", client, json.dumps(asdict(job))]
    run = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=RUN_TIMEOUT_SECONDS, check=False
    )
    if run.returncode == 3:
        return None
    if run.returncode:
        raise RuntimeError(f"{client}, {job.mode}: {run.stderr[-2000:]}")
    found = json.loads(run.stdout.splitlines()[-1])
    assert isinstance(found, dict)
    return found


class Topics:
    """Topics of the comparison, made when a case needs them and gone at its end; what was filled is kept."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._filled: dict[tuple[int, int], tuple[str, int]] = {}
        self._made: list[str] = []

    def fresh(self) -> str:
        """A new topic of one partition."""
        name = f"clients-{os.getpid()}-{time.monotonic_ns()}"
        create_topic(self._bootstrap, name, 1)
        self._made.append(name)
        return name

    def filled(self, case: Case, count: int) -> str:
        """A topic that holds at least `count` visible records of the case's size."""
        name, there = self._filled.get((case.size_bytes, case.filled), ("", 0))
        if there < count:
            name = self.fresh()
            mode = "produce" if case.filled == 1 else "fill"
            run_one("confluent-kafka", Job(mode, self._bootstrap, name, case.size_bytes, count, case.filled))
            self._filled[case.size_bytes, case.filled] = name, count
        return name

    def clear(self) -> None:
        """Give the disk back what all this took."""
        for name in self._made:
            delete_topic(self._bootstrap, name)


def run_case(case: Case, clients: list[str], options: argparse.Namespace, topics: Topics) -> list[Measured]:
    """All runs of one case: A B C, then C B A, so that what drifts on the machine hits all alike."""
    found: list[Measured] = []
    count = max(1, round(case.count * options.scale))
    whom = [client for client in clients if client in OURS or not case.only_ours]
    source = topics.filled(case, needed(case, count)) if case.filled else None
    for number in range(options.rounds):
        for client in whom if number % 2 == 0 else whom[::-1]:
            job = Job(case.mode, options.address, source or topics.fresh(), case.size_bytes, count)
            if case.mode == "etl":
                create_out(options.address, f"{job.topic}-out")
            result = run_one(client, job)
            if result is None:
                continue
            figures = {name: value for name, value in result["figures"].items() if wanted(case, name)}
            shown = ", ".join(f"{value:,.4g} {name}" for name, value in figures.items())
            print(f"{case.name:<42} {client + ' ' + result['version']:<42} {shown}", flush=True)
            found += [Measured(case.name, name, client, value) for name, value in figures.items()]
    return found


def needed(case: Case, count: int) -> int:
    """How many records a topic must hold for `count` of the case: each of etl's transactions reads some."""
    return (count + WARM_UP_TRANSACTIONS) * PER_TRANSACTION if case.mode == "etl" else count


def create_out(address: str, topic: str) -> None:
    """The topic that etl writes to, once."""
    if topic not in _OUT_TOPICS:
        create_topic(address, topic, 1)
        _OUT_TOPICS.add(topic)


_OUT_TOPICS: set[str] = set()


def wanted(case: Case, metric: str) -> bool:
    """Transactions are counted as such."""
    return metric != "records/s" or case.mode not in ("transactions", "etl")


def beside(measured: list[Measured]) -> list[Measured]:
    """Each case that only ours have, with the figures of the others in the case it stands beside."""
    reference = {case.name: case.beside for case in CASES if case.beside}
    found = list(measured)
    for name, other in reference.items():
        if any(one.case == name for one in measured):
            found += [one._replace(case=name) for one in measured if one.case == other and one.broker not in OURS]
    return found


def main() -> int:
    """Measure and write the table."""
    options = parse_options()
    clients = options.clients.split(",")
    measured: list[Measured] = []
    with broker(options) as address:
        options.address = address
        topics = Topics(address)
        try:
            for case in CASES:
                if options.only in case.name:
                    measured += run_case(case, clients, options, topics)
        finally:
            topics.clear()
    pairs = [("fencepost", other) for other in clients if other not in OURS]
    pairs += [("fencepost-pure", other) for other in clients if other not in OURS]
    command = shlex.join(["python", "-m", "bench.clients", *sys.argv[1:]])
    text = f"{table(beside(measured), pairs)}\n\n{circumstances(command)}"
    path = write(OUT, measured, text, prefix="clients-")
    print(f"\n{text}\n\nWritten to {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
