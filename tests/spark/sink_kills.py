"""Drivers that are killed with -9 wherever it hurts. The one question: is the output the input, exactly once?

    python -m tests.spark.sink_kills --kills 50

Each round writes more input, starts a driver (tests/spark/sink_driver.py) and kills it: at a point of a batch's commit,
at any time, or as a zombie, which is frozen, succeeded, and let go again. The last driver ends in peace, and then a
consumer of librdkafka compares.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.kit.broker_process import BrokerProcess
from tests.spark.conftest import new_producer, new_topic, prepare_spark
from tests.spark.driver_process import Driver
from tests.spark.output_check import faults
from tests.spark.sink_driver import Plan
from tests.spark.sink_points import LANE_POINTS, POINTS

MOST_STARTS = 10
DIED = -signal.SIGKILL
TWO_PHASE = {"unstable.api.versions.enable": "true", "transaction.two.phase.commit.enable": "true"}


class World:
    """Two topics, a checkpoint, and what was written to the first."""

    def __init__(self, bootstrap: str, work_dir: Path, *, two_phase: bool = False, seed: int = 0) -> None:
        name = os.urandom(4).hex()
        self.random = random.Random(seed)
        self.bootstrap = bootstrap
        self.log = work_dir / "drivers.log"
        self.checkpoint = work_dir / f"checkpoint-{name}"
        self.two_phase = two_phase
        self.input = new_topic(bootstrap, f"in-{name}", partitions=2)
        self.output = new_topic(bootstrap, f"out-{name}", partitions=2)
        self._producer = new_producer(bootstrap)
        self.written = 0
        self.kills: Counter[str] = Counter()
        self.restarts = 0

    def produce(self, rows: int) -> None:
        """More input, each value another one."""
        self._producer.begin_transaction()
        for number in range(self.written, self.written + rows):
            self._producer.produce(self.input, b"%d" % number, key=b"%d" % (number % 17))
        self._producer.commit_transaction(60)
        self.written += rows

    def driver(self, die_at: str = "", die_in: int = -1, *, flaky: bool = False, batch_rows: int = 100) -> Driver:
        """Start one; see Plan."""
        plan = Plan(
            self.bootstrap,
            self.input,
            self.output,
            str(self.checkpoint),
            batch_rows,
            two_phase=self.two_phase,
            flaky=flaky,
            die_at=die_at,
            die_in=die_in,
        )
        return Driver("tests.spark.sink_driver", plan.text(), self.log)

    @property
    def next_batch(self) -> int:
        """The batch that a new driver begins with, by Spark's own log of commits."""
        commits = self.checkpoint / "commits"
        done = [int(path.name) for path in commits.iterdir() if path.name.isdigit()] if commits.exists() else []
        return max(done, default=-1) + 1

    def killed_at(self, point: str, *, later: int = 0, flaky: bool = False) -> None:
        """A driver that dies at a point of its first batch, or of a later one."""
        ended = self._run(point, self.next_batch + later, flaky=flaky)
        assert ended == DIED, f"the driver should have died {point}, and ended with {ended}; see {self.log}"
        self.kills[point] += 1

    def killed_some_time(self) -> None:
        """A driver that dies while its query runs, wherever it is then."""
        with self.driver(flaky=self.random.random() < 0.3) as driver:
            if driver.started():
                time.sleep(self.random.uniform(0, 6))
                driver.kill()
                self.kills["any time"] += driver.wait() == DIED

    def zombie(self) -> None:
        """A driver that is frozen in its work and wakes while its successor is at work; then it dies."""
        with self.driver() as old:
            if not old.started():
                return
            time.sleep(self.random.uniform(0.5, 5))
            old.signal(signal.SIGSTOP)
            with self.driver(self.random.choice(POINTS), self.next_batch + 1) as new:
                if new.started():
                    time.sleep(self.random.uniform(0, 4))
                old.signal(signal.SIGCONT)
                new.wait()
        self.kills["zombie"] += 1

    def finish(self) -> None:
        """A last driver copies what is left, in peace."""
        ended = self._run()
        assert ended == 0, f"the last driver failed with {ended}; see {self.log}"

    def _run(self, die_at: str = "", die_in: int = -1, *, flaky: bool = False) -> int:
        """A driver's exit code; another one is started where Spark did not wait for its Python workers."""
        for _ in range(MOST_STARTS):
            with self.driver(die_at, die_in, flaky=flaky) as driver:
                ended = driver.wait()
                if ended in (0, DIED) or not driver.had_no_worker():
                    return ended
            self.restarts += 1
        return ended

    def check(self) -> None:
        """The committed output is the input, exactly once, and nothing holds readers back."""
        found = faults([b"%d" % n for n in range(self.written)], committed(self.bootstrap, self.output, 2))
        assert not found, found


def committed(bootstrap: str, topic: str, partitions: int) -> list[bytes]:
    """All committed values; see committed_messages."""
    return [message.value() for message in committed_messages(bootstrap, topic, partitions)]


def committed_messages(bootstrap: str, topic: str, partitions: int) -> list[Any]:
    """All committed records, read by librdkafka up to the high watermark; TimeoutError if it cannot get there."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    settings = {"bootstrap.servers": bootstrap, "group.id": "none", "isolation.level": "read_committed"}
    consumer: Any = Consumer({**settings, "enable.partition.eof": False, "enable.auto.commit": False})
    places = [TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)]
    consumer.assign(places)
    found: list[Any] = []
    try:
        deadline = time.monotonic() + 120
        while True:
            message = consumer.poll(0.2)
            if message is not None:
                assert message.error() is None, message.error()
                found.append(message)
                continue
            at = {place.partition: place.offset for place in consumer.position(places)}
            # Markers hold offsets, too: the position is past them only once they were read.
            ends = {p.partition: consumer.get_watermark_offsets(p, timeout=30)[1] for p in places}
            if all(at[number] >= end or end == 0 for number, end in ends.items()):
                return found
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic} can be read up to {at} only, and ends at {ends}: a transaction is open")
    finally:
        consumer.close()


def play(world: World, kills: int, minutes: float = float("inf")) -> None:
    """Kill drivers until so many have died, or so much time is over; then look at what is there."""
    points = LANE_POINTS if world.two_phase else POINTS
    until = time.monotonic() + 60 * minutes
    while sum(world.kills.values()) < kills and time.monotonic() < until:
        world.produce(150)
        fault = world.random.random()
        if fault < 0.6:
            point = points[sum(world.kills[point] for point in points) % len(points)]
            world.killed_at(point, later=world.random.choice((0, 0, 1)), flaky=world.random.random() < 0.3)
        elif fault < 0.9:
            world.killed_some_time()
        else:
            world.zombie()
        told = f"{world.written} rows, killed: {dict(world.kills)}, begun again: {world.restarts}"
        print(f"{time.strftime('%H:%M:%S')} {told}", flush=True)
    world.finish()
    world.check()


def main() -> None:
    """The long run, from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no further round after these")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(2)))
    parser.add_argument("--two-phase", action="store_true")
    parser.add_argument("--bootstrap", help="a broker to use instead of one of its own")
    given = parser.parse_args()
    prepare_spark()
    print(f"seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="sink-kills-") as name:
        work_dir = Path(name)
        with ExitStack() as stack:
            bootstrap = given.bootstrap
            if not bootstrap:
                own = BrokerProcess(work_dir / "broker", data_dir=work_dir / "data", settings=TWO_PHASE)
                bootstrap = stack.enter_context(own).address
            world = World(bootstrap, work_dir, two_phase=given.two_phase, seed=given.seed)
            play(world, given.kills, given.minutes)
    print(f"{world.written} rows, {sum(world.kills.values())} kills: the output is the input, exactly once")


if __name__ == "__main__":
    main()
