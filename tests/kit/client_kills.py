"""Exactly-once consume-transform-produce under kill -9 of either side, judged by a reader that is not ours.

    python -m tests.kit.client_kills --kills 200 --seed 7 [--transaction-version 1] [--whole]

Two processes of our client copy a topic; confluent-kafka writes what they copy, and reads the copy in the end. At
random moments one of the copying processes, or the broker, is killed with SIGKILL and started again. Lost: in the
source and not in the copy. Twice: more than once in the copy.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import trio
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

import fencepost
from tests.kit.broker_process import BrokerProcess
from tests.kit.copy_worker import SESSION_MS

SOURCE, TARGET, GROUP = "copied", "copy", "copiers"
PARTITIONS = 3
WORKERS = 2
PER_KILL = 150
PER_TRANSACTION = 5
PATIENCE_S = 200.0


@dataclass
class Verdict:
    """What the reader found."""

    kills: Counter[str] = field(default_factory=Counter)
    written: int = 0
    lost: list[bytes] = field(default_factory=list)
    twice: list[bytes] = field(default_factory=list)
    foreign: list[bytes] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def clean(self) -> bool:
        """Each once, and nothing else."""
        return not (self.lost or self.twice or self.foreign)

    def __str__(self) -> str:
        return (
            f"{sum(self.kills.values())} kills ({dict(self.kills)}), {self.written} records in {self.seconds:.0f} s:"
            f" {len(self.lost)} lost, {len(self.twice)} twice, {len(self.foreign)} foreign"
        )


class Run:
    """One run; `go` is all of it."""

    def __init__(self, directory: Path, kills: int, seed: str, level: int, whole: bool) -> None:
        self._directory = directory
        self._kills = kills
        self._random = Random(seed)
        self._level = level
        self._whole = whole
        settings = {"group.min.session.timeout.ms": str(SESSION_MS), "group.initial.rebalance.delay.ms": "0"}
        self._broker = BrokerProcess(directory, data_dir=directory / "data", settings=settings)
        self._workers: list[subprocess.Popen[bytes]] = []
        self._starts = 0
        self.verdict = Verdict()

    def go(self) -> Verdict:
        """Write, kill, wait, read, judge."""
        began = time.monotonic()
        with self._broker:
            trio.run(self._create)
            self._writer = Producer(
                {
                    "bootstrap.servers": self._broker.address,
                    "linger.ms": 1,
                    "transactional.id": "writer",
                    "transaction.timeout.ms": 100_000,
                }
            )
            self._writer.init_transactions(100)
            try:
                for number in range(WORKERS):
                    self._workers.append(self._worker(number))
                for _ in range(self._kills):
                    self._write(PER_KILL)
                    time.sleep(self._random.uniform(0.05, 0.7))
                    self._kill()
                self._write(PER_KILL)
                self._wait_for_the_copy()
            finally:
                for worker in self._workers:
                    worker.kill()
                    worker.wait()
            self._judge()
        self.verdict.seconds = time.monotonic() - began
        return self.verdict

    async def _create(self) -> None:
        async with fencepost.Client(self._broker.address) as kafka, kafka.admin() as admin:
            if self._level != 2:
                await admin.update_features({"transaction.version": self._level}, downgrade=True)
            for topic in (SOURCE, TARGET):
                await admin.create_topics(topic, partitions=PARTITIONS)

    def _worker(self, number: int) -> subprocess.Popen[bytes]:
        self._starts += 1
        command = [sys.executable, "-m", "tests.kit.copy_worker", self._broker.address, SOURCE, TARGET, GROUP]
        command += [f"copier-{number}"] + ["whole"] * self._whole
        with (self._directory / f"copier-{number}.log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log)

    def _write(self, count: int) -> None:
        """By an outside client, in transactions, each known to be committed before the next kill."""
        for _ in range(count // PER_TRANSACTION):
            self._writer.begin_transaction()
            name = self.verdict.written // PER_TRANSACTION
            for _ in range(PER_TRANSACTION):
                value = b"%d.%d" % (name, self.verdict.written)
                self._writer.produce(SOURCE, value, partition=self._random.randrange(PARTITIONS))
                self.verdict.written += 1
            self._writer.commit_transaction(100)

    def _kill(self) -> None:
        victim = self._random.randrange(WORKERS + 1)
        self.verdict.kills["broker" if victim == WORKERS else "client"] += 1
        if victim == WORKERS:
            self._broker.restart()
            return
        self._workers[victim].kill()
        self._workers[victim].wait()
        self._workers[victim] = self._worker(victim)

    def _wait_for_the_copy(self) -> None:
        """Until as much is there as was written, or nothing more comes."""
        ends = time.monotonic() + PATIENCE_S
        while time.monotonic() < ends:
            for number, worker in enumerate(self._workers):
                if worker.poll() is not None:
                    raise RuntimeError(f"copier {number} ended with {worker.returncode}: {self._log_of(number)}")
            if sum(self._count_per_value().values()) >= self.verdict.written:
                return
            time.sleep(0.3)

    def _log_of(self, number: int) -> str:
        return (self._directory / f"copier-{number}.log").read_text()[-2000:]

    def _reader(self, group: str) -> Any:
        return Consumer(
            {
                "bootstrap.servers": self._broker.address,
                "group.id": group,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
            }
        )

    def _count_per_value(self) -> Counter[bytes]:
        reader = self._reader("judge")
        try:
            reader.assign([TopicPartition(TARGET, number, 0) for number in range(PARTITIONS)])
            seen: Counter[bytes] = Counter()
            at_end: set[int] = set()
            while len(at_end) < PARTITIONS:
                for message in reader.consume(1000, 5.0):
                    if message.error() is None:
                        seen[message.value()] += 1
                    elif message.error().code() == KafkaError._PARTITION_EOF:
                        at_end.add(message.partition())  # librdkafka says so again where something came meanwhile
                    else:
                        raise KafkaException(message.error())
            return seen
        finally:
            reader.close()

    def _judge(self) -> None:
        seen = self._count_per_value()
        wanted = {b"<%d.%d>" % (n // PER_TRANSACTION, n) for n in range(self.verdict.written)}
        self.verdict.lost = sorted(wanted - seen.keys())
        self.verdict.twice = sorted(value for value, count in seen.items() if count > 1)
        self.verdict.foreign = sorted(seen.keys() - wanted)


def main() -> int:
    """One run by the command line; 1 if something was lost or came twice."""
    parser = argparse.ArgumentParser(prog="python -m tests.kit.client_kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", default="0")
    parser.add_argument("--transaction-version", type=int, default=2, choices=[0, 1, 2])
    parser.add_argument("--whole", action="store_true", help="copy by consumer.transactions()")
    parser.add_argument("--directory", help="where broker and logs go; default a new one")
    options = parser.parse_args()
    directory = Path(options.directory or tempfile.mkdtemp(prefix="client-kills-"))
    run = Run(directory, options.kills, options.seed, options.transaction_version, options.whole)
    verdict = run.go()
    print(f"{verdict}; {directory}")
    for name, values in (("lost", verdict.lost), ("twice", verdict.twice), ("foreign", verdict.foreign)):
        if values:
            print(name, values[:20])
    return 0 if verdict.clean else 1


if __name__ == "__main__":
    sys.exit(main())
