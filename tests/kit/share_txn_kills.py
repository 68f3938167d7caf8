"""kill -9 while workers of a share group consume, transform and produce in transactions: the output is exactly once.

`python -m tests.kit.share_txn_kills --cycles 50` kills a broker that often, at random, and prints what happened.
"""

import argparse
import random
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from fencepost.protocol.errors import ErrorCode
from tests.kit.broker_process import BrokerProcess
from tests.kit.share_members import ACCEPT, Ack, ShareMember, initialize, topic_id_of
from tests.kit.share_transactions import UNSTABLE, Transactions
from tests.kit.wire import ConnectionEnded, Wire, batch_of, committed_values, records_in

SETTINGS = {
    **UNSTABLE,
    "group.share.delivery.count.limit": "10",
    "share.coordinator.snapshot.update.records.per.snapshot": "7",
    "share.coordinator.state.topic.prune.interval.ms": "300",
    "share.coordinator.cold.partition.snapshot.interval.ms": "300",
}
GROUP, WORKERS, RECORDS = "workers", 2, 30
"""`RECORDS` come with each cycle."""
LONGEST_S = 60.0


class Refused(Exception):
    """The broker refused a step of a transaction: the worker aborts, by a new epoch of its id."""


class Run:
    """The broker, its workers, and what they saw."""

    def __init__(self, broker: BrokerProcess, seed: str) -> None:
        self.broker = broker
        self.chance = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.stopped = threading.Event()
        self.whole: dict[str, Transactions] = {}
        """By worker: the transaction that has all of its output and acknowledgements, and only has to end."""
        self.made = 0
        with Wire(broker.connect()) as wire:
            wire.create_topic("in")
            wire.create_topic("out")
            self.topic_id = topic_id_of(wire, "in")
            initialize(wire, GROUP, self.topic_id, [0])

    def work(self, name: str) -> None:
        """Until the run stops: with each connection, one transaction after the other."""
        chance = random.Random(name)
        while not self.stopped.is_set():
            try:
                with Wire(self.broker.connect()) as wire:
                    self._with(wire, name, chance)
            except (OSError, ConnectionEnded):
                self.counts["connections lost"] += 1
                time.sleep(0.02)
            except Refused as refused:
                self.counts[f"refused: {refused}"] += 1

    def _with(self, wire: Wire, name: str, chance: random.Random) -> None:
        if name in self.whole and chance.random() < 0.7:
            self._commit_late(wire, name, chance)
        member = ShareMember(wire, GROUP, name, self.topic_id)
        work = Transactions(wire, name)
        while not self.stopped.is_set():
            answer = member.fetch(max_records=chance.randint(1, 8), wait_ms=100)
            values = _values(answer)
            for offset, _ in member.taken(answer):
                _check(work.produce("out", values[offset]))
                _check(*work.ack(member, Ack(0, offset, offset, ACCEPT)))
            if member.taken(answer):
                commit = chance.random() < 0.9
                if commit:
                    self.whole[name] = work
                    time.sleep(chance.uniform(0, 0.05))
                _check(work.end(commit=commit))
                self.whole.pop(name, None)
                self.counts["committed" if commit else "aborted"] += 1

    def _commit_late(self, wire: Wire, name: str, chance: random.Random) -> None:
        """As a client that asks again after a crash; the other worker may read meanwhile."""
        time.sleep(chance.uniform(0, 0.3))
        work = self.whole.pop(name)
        work.wire = wire
        _check(work.end(commit=True))
        self.counts["committed after a crash"] += 1

    def feed(self, wire: Wire) -> None:
        """More records to work on, while the broker lives."""
        for _ in range(RECORDS):
            assert wire.produce("in", batch_of(b"%d" % self.made)).error_code == ErrorCode.NONE
            self.made += 1

    def cycle(self) -> None:
        """Feed, let the workers work for a moment, kill."""
        with Wire(self.broker.connect()) as wire:
            self.feed(wire)
        time.sleep(self.chance.uniform(0, 0.4))
        self.broker.restart()
        self.counts["kills"] += 1

    def outcome(self) -> Counter[bytes | None]:
        """How often each value is in the output, once all are, or the time is over."""
        deadline = time.monotonic() + LONGEST_S
        while True:
            with Wire(self.broker.connect()) as wire:
                found = Counter(self._read(wire))
            if len(found) >= self.made or time.monotonic() > deadline:
                return found
            time.sleep(0.1)

    def _read(self, wire: Wire) -> list[bytes | None]:
        return committed_values(wire.fetch("out", isolation=1))


def _values(answer: Any) -> dict[int, bytes]:
    """By offset; the answer has whole batches, in which there may be records that were not acquired."""
    parts = [part for topic in answer.responses for part in topic.partitions]
    return {record.offset: record.value or b"" for part in parts for record in records_in(part)}


def _check(*codes: ErrorCode) -> None:
    for code in codes:
        if code:
            raise Refused(code.name)


def kill_and_count(broker: BrokerProcess, cycles: int, seed: str = "share kills") -> Counter[str]:
    """Run it; what happened. Raises AssertionError if a record is not in the output exactly once."""
    run = Run(broker, seed)
    workers = [threading.Thread(target=run.work, args=(f"worker-{number}",)) for number in range(WORKERS)]
    for worker in workers:
        worker.start()
    try:
        for _ in range(cycles):
            run.cycle()
        found = run.outcome()
    finally:
        run.stopped.set()
        for worker in workers:
            worker.join()
    with Wire(broker.connect()) as wire:
        found = Counter(run._read(wire))
    assert found == Counter({b"%d" % number: 1 for number in range(run.made)}), {
        value: count for value, count in found.items() if count != 1
    } or f"{run.made - len(found)} are missing"
    run.counts["records, each exactly once"] = run.made
    return run.counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=50)
    parser.add_argument("--seed", default="share kills")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as directory,
        BrokerProcess(Path(directory), data_dir=Path(directory) / "data", settings=SETTINGS) as broker,
    ):
        for what, count in kill_and_count(broker, options.cycles, options.seed).items():
            print(f"{count:6} {what}")


if __name__ == "__main__":
    main()
