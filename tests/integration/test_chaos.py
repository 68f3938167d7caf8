"""Attempts to break exactly-once: whole runs under kill -9 and SIGSTOP, requests that come late, and come twice."""

import contextlib
import itertools
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fencepost.protocol.errors import ErrorCode
from tests.conftest import StartBroker
from tests.kit.connections import Connections
from tests.kit.wire import ADD_PARTITIONS, Wire, add_request, batch_of, committed_values, values_in

ROOT = Path(__file__).resolve().parents[2]
READ_COMMITTED = 1
RUN_TIMEOUT_SECONDS = 400
TV1_PRODUCE, TV1_END = 11, 4
TV2_PRODUCE, TV2_END = 12, 5
FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
Identity = tuple[int, int]


# Whole runs


@pytest.mark.timeout(RUN_TIMEOUT_SECONDS + 10)
@pytest.mark.parametrize(("durability", "seed"), [("fsync", "ci-1"), ("os", "ci-2")])
def test_exactly_once_holds_while_everything_is_killed(tmp_path: Path, durability: str, seed: str) -> None:
    """Section 6, goals "kill -9 cycles" and "list-append": the long form is `python -m tests.kit.workload`."""
    arguments = ["--seconds", "6", "--seed", seed, "--durability", durability, "--transactional", "1"]
    command = [sys.executable, "-m", "tests.kit.workload", *arguments, "--directory", str(tmp_path)]
    run = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        said, _ = run.communicate(timeout=RUN_TIMEOUT_SECONDS)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)  # whatever it has left behind, frozen or not
        run.wait()
    assert run.returncode == 0, said


# Late requests: what Jepsen found in Kafka's protocol (KAFKA-17754), and KIP-890's cure


@dataclass
class Story:
    """One transactional id with a topic of its own, in its second transaction; and what comes late of its first."""

    name: str
    first_commits: bool
    late_commits: bool
    second_commits: bool
    old: Identity = (-1, -1)
    now: Identity = (-1, -1)

    def produce(self, wire: Wire, producer: Identity, value: bytes, sequence: int, partition: int = 0) -> Any:
        """One transactional record, TV2; the partition's answer."""
        return _produce(wire, self.name, producer, value, sequence, partition, TV2_PRODUCE)

    def write(self, wire: Wire, value: bytes, sequence: int, partition: int = 0) -> None:
        """One record of the present transaction."""
        answer = self.produce(wire, self.now, value, sequence, partition)
        assert answer.error_code == ErrorCode.NONE, (self, answer)

    def end(self, wire: Wire, producer: Identity, commit: bool) -> Any:
        """EndTxn, TV2."""
        return wire.end_txn(self.name, producer, commit=commit, version=TV2_END)

    def first_transaction(self, wire: Wire) -> None:
        """Over both partitions, from beginning to end."""
        wire.create_topic(self.name, partitions=2)
        self.old = wire.init_producer_id(self.name)
        for partition in (0, 1):
            answer = self.produce(wire, self.old, b"first", 0, partition)
            assert answer.error_code == ErrorCode.NONE
        answer = self.end(wire, self.old, self.first_commits)
        assert answer.error_code == ErrorCode.NONE
        self.now = (answer.producer_id, answer.producer_epoch)
        assert self.now == (self.old[0], self.old[1] + 1)

    def late_ends(self, connections: Connections) -> set[ErrorCode]:
        """The first transaction's EndTxn comes again, twice, on a connection of its own; the answers."""
        wire = connections.new()
        return {ErrorCode(self.end(wire, self.old, self.late_commits).error_code) for _ in range(2)}

    def seen(self, wire: Wire) -> list[list[bytes | None]]:
        """What a read_committed reader gets, by partition."""
        return _seen(wire, self.name)


def _produce(
    wire: Wire, name: str, producer: Identity, value: bytes, sequence: int, partition: int, version: int
) -> Any:
    batch = batch_of(
        value, transactional=True, producer_id=producer[0], producer_epoch=producer[1], base_sequence=sequence
    )
    return wire.produce(name, batch, partition=partition, version=version, transactional_id=name)


def _seen(wire: Wire, topic: str) -> list[list[bytes | None]]:
    return [committed_values(wire.fetch(topic, partition=partition, isolation=READ_COMMITTED)) for partition in (0, 1)]


@pytest.mark.parametrize("crash", [False, True])
def test_a_late_end_of_transaction_n_does_not_touch_transaction_n_plus_1(connections: Connections, crash: bool) -> None:
    """T16: under TV2 the old epoch says which transaction was meant, whatever became of it and whatever comes late.

    With `crash`, the broker is killed each time before the late requests come.
    """
    outcomes = itertools.product((True, False), repeat=3)
    stories = [Story(f"t{number}", *outcome) for number, outcome in enumerate(outcomes)]
    wire = connections.new()
    for story in stories:
        story.first_transaction(wire)
    wire = connections.after_crash() if crash else wire
    for story in stories:  # between two transactions: at most the old answer comes again
        codes = story.late_ends(connections)
        assert codes == {ErrorCode.NONE} if story.late_commits == story.first_commits else ErrorCode.NONE not in codes
        story.write(wire, b"second", 0)
    wire = connections.after_crash() if crash else wire
    for story in stories:  # in the next transaction, with one partition in it
        assert story.late_ends(connections) == {ErrorCode.PRODUCER_FENCED}
        before = [b"first"] if story.first_commits else []
        assert story.seen(wire) == [before, before]
        story.write(wire, b"second", 0, partition=1)
        story.write(wire, b"third", 1)
    wire = connections.after_crash() if crash else wire
    for story in stories:  # with both, just before its end, and after it
        assert story.late_ends(connections) == {ErrorCode.PRODUCER_FENCED}
        assert story.end(wire, story.now, story.second_commits).error_code == ErrorCode.NONE
        assert ErrorCode.NONE not in story.late_ends(connections)
        before = [b"first"] if story.first_commits else []
        after = [[b"second", b"third"], [b"second"]] if story.second_commits else [[], []]
        assert story.seen(wire) == [before + after[0], before + after[1]]
        for partition in (0, 1):
            fetched = wire.fetch(story.name, partition=partition)
            assert fetched.last_stable_offset == fetched.high_watermark


@pytest.mark.parametrize("crash", [False, True])
def test_late_writes_of_transaction_n_do_not_get_into_transaction_n_plus_1(
    connections: Connections, crash: bool
) -> None:
    """P4, T16: Produce, TxnOffsetCommit and AddPartitionsToTxn of the old epoch are refused at any moment."""
    story, wire = Story("t", True, True, True), connections.new()
    story.first_transaction(wire)
    for moment in ("between", "within"):
        if moment == "within":
            story.write(wire, b"second", 0)
        wire = connections.after_crash() if crash else wire
        late = connections.new()
        for partition, sequence in itertools.product((0, 1), (0, 1)):
            answer = story.produce(late, story.old, b"late", sequence, partition)
            assert answer.error_code == ErrorCode.INVALID_PRODUCER_EPOCH, (moment, answer)
        assert late.commit_in_transaction("g", story.name, 99, story.name, story.old) in FENCED
        assert _late_partitions(late, story) in FENCED
    assert story.end(wire, story.now, True).error_code == ErrorCode.NONE
    assert story.seen(wire) == [[b"first", b"second"], [b"first"]]
    uncommitted = [values_in(wire.fetch("t", partition=partition)) for partition in (0, 1)]
    assert uncommitted == [[b"first", b"second"], [b"first"]]


def _late_partitions(wire: Wire, story: Story) -> ErrorCode:
    request = add_request(story.name, story.old, story.name, 1)
    response = wire.call(ADD_PARTITIONS, 3, request)
    return ErrorCode(response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)


@pytest.mark.parametrize("cured", [False, True])
def test_what_tv1_risks_and_what_takes_the_risk_away(connections: Connections, cured: bool) -> None:
    """docs/transactions.md, "what it risks": TV1's epoch stays, so a late EndTxn ends whatever is open.

    A new InitProducerId after an uncertain commit moves the epoch on, and the late copy dies of that.
    """
    wire, late = connections.new(), connections.new()
    wire.create_topic("t", partitions=2)
    old = wire.init_producer_id("t")
    wire.add_partitions("t", old, "t", 0)
    assert _produce(wire, "t", old, b"first", 0, 0, TV1_PRODUCE).error_code == ErrorCode.NONE
    assert wire.end_txn("t", old, commit=True, version=TV1_END).error_code == ErrorCode.NONE
    now = wire.init_producer_id("t") if cured else old
    wire.add_partitions("t", now, "t", 0, 1)
    assert _produce(wire, "t", now, b"second", 0 if cured else 1, 0, TV1_PRODUCE).error_code == ErrorCode.NONE
    code = late.end_txn("t", old, commit=True, version=TV1_END).error_code
    third = _produce(wire, "t", now, b"third", 0, 1, TV1_PRODUCE).error_code
    if cured:
        assert code == ErrorCode.PRODUCER_FENCED
        assert third == ErrorCode.NONE
        assert wire.end_txn("t", now, commit=False, version=TV1_END).error_code == ErrorCode.NONE
        assert _seen(wire, "t") == [[b"first"], []]
    else:
        assert code == ErrorCode.NONE
        assert _seen(wire, "t") == [[b"first", b"second"], []]
        assert third != ErrorCode.NONE, "KIP-890 part 1: what comes after it is not left hanging"


# Requests that come twice


@dataclass
class Repeater:
    """A producer whose batches of two records come again."""

    topic: str
    transactional: bool
    segment_bytes: int
    producer: Identity = (-1, -1)

    def begin(self, wire: Wire) -> None:
        """The topic, the producer id, and eight batches."""
        wire.create_topic(self.topic, internal_segment_bytes=str(self.segment_bytes))
        self.producer = wire.init_producer_id(self.topic if self.transactional else None)
        for number in range(8):
            assert self.send(wire, number) == (ErrorCode.NONE, 2 * number)

    def send(self, wire: Wire, number: int) -> tuple[int, int]:
        """Batch `number`, always the same bytes; error and offset."""
        value = b"%d" % number
        producer_id, epoch = self.producer
        batch = batch_of(
            value,
            value,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=2 * number,
            transactional=self.transactional,
        )
        transactional_id = self.topic if self.transactional else None
        answer = wire.produce(self.topic, batch, version=TV2_PRODUCE, transactional_id=transactional_id)
        return answer.error_code, answer.base_offset


@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_the_last_five_batches_can_come_again_after_a_crash(start_broker: StartBroker, durability: str) -> None:
    """P3 over kill -9 and a new connection: the old offset, no second copy; segments rolled in between or not."""
    broker = start_broker(files=True, arguments=["--durability", durability])
    ways = itertools.product((False, True), (1 << 20, 300))
    repeaters = [Repeater(f"t{number}", *way) for number, way in enumerate(ways)]
    with Wire(broker.connect()) as wire:
        for one in repeaters:
            one.begin(wire)
    for _ in range(2):
        broker.restart()
        for one in repeaters:
            for number in (7, 3, 4, 5, 6, 7):
                with Wire(broker.connect()) as wire:
                    assert one.send(wire, number) == (ErrorCode.NONE, 2 * number), one
            with Wire(broker.connect()) as wire:
                assert one.send(wire, 2)[0] != ErrorCode.NONE, "older ones are refused, not repeated"
                assert values_in(wire.fetch(one.topic)) == [b"%d" % (n // 2) for n in range(16)]
    with Wire(broker.connect()) as wire:
        for one in repeaters:
            assert one.send(wire, 8) == (ErrorCode.NONE, 16)
            if one.transactional:
                assert wire.end_txn(one.topic, one.producer, commit=True, version=TV2_END).error_code == ErrorCode.NONE
            committed = committed_values(wire.fetch(one.topic, isolation=READ_COMMITTED))
            assert committed == [b"%d" % (n // 2) for n in range(18)]
