"""Whole transactions out of random interleavings: every unit is a transaction, or several; never a part, never twice.

The model is a cluster's timeline: producers write batches to partitions and then have their markers written in any
order, all of them before they begin again (T7); a reader sees each log grow, in its own time, and asks for ends.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.client.core.offset_metadata import decode_metadata, encode_metadata
from fencepost.client.core.transaction_assembler import PLAIN, Assembler, Piece, Place, Unit
from fencepost.protocol.topics import TopicPartition
from tests.kit.examples import examples

pytestmark = pytest.mark.long

Ends = dict[TopicPartition, int]
PARTITIONS = [TopicPartition("t", n) for n in range(3)]


@dataclass(frozen=True)
class Batch:
    """A batch or (with `commit`) a marker at one offset."""

    producer_id: int
    epoch: int
    sequence: int = -1
    commit: bool | None = None


@dataclass
class Producer:
    """One producer's part of the timeline."""

    producer_id: int
    tv2: bool
    epoch: int = 0
    number: int = 0
    open: set[TopicPartition] = field(default_factory=set)
    ending: list[TopicPartition] = field(default_factory=list)
    commit: bool = True
    sequences: dict[tuple[TopicPartition, int], int] = field(default_factory=dict)


class Cluster:
    """All logs, and which transaction stands at which offset: (producer id, number) or (PLAIN, offset)."""

    def __init__(self, producers: int, tv2: list[bool], *, changes: bool = False) -> None:
        self.changes = changes
        self.logs: dict[TopicPartition, list[Batch]] = {p: [] for p in PARTITIONS}
        self.owner: dict[tuple[TopicPartition, int], tuple[int, int]] = {}
        self.committed: dict[tuple[int, int], set[tuple[TopicPartition, int]]] = defaultdict(set)
        self.producers = [Producer(n, tv2[n % len(tv2)]) for n in range(producers)]
        self._records: dict[tuple[int, int], set[tuple[TopicPartition, int]]] = defaultdict(set)

    def plain(self, partition: TopicPartition) -> None:
        place = (partition, len(self.logs[partition]))
        self.logs[partition].append(Batch(PLAIN, -1))
        self.owner[place] = (PLAIN, hash(place))
        self.committed[self.owner[place]] = {place}

    def step(self, which: int, partition: TopicPartition, what: str) -> None:
        """The producer writes, or ends; while its markers are being written it can only write the next one of them."""
        one = self.producers[which % len(self.producers)]
        if one.ending:
            self._mark(one)
        elif what == "write":
            log = self.logs[partition]
            place = (partition, len(log))
            key = (partition, one.epoch)
            log.append(Batch(one.producer_id, one.epoch, one.sequences.get(key, 0)))
            one.sequences[key] = one.sequences.get(key, 0) + 1
            one.open.add(partition)
            self.owner[place] = (one.producer_id, one.number)
            self._records[one.producer_id, one.number].add(place)
        elif one.open:
            one.commit = what == "commit"
            if one.commit:
                self.committed[one.producer_id, one.number] = self._records[one.producer_id, one.number]
            one.ending = sorted(one.open, key=lambda p: (p.partition * 7 + one.number) % 5)
            self._mark(one)

    def _mark(self, one: Producer) -> None:
        partition = one.ending.pop()
        self.logs[partition].append(Batch(one.producer_id, one.epoch + one.tv2, commit=one.commit))
        if not one.ending:
            one.epoch += one.tv2
            one.number += 1
            one.open = set()
            one.tv2 = one.tv2 != (self.changes and one.number % 3 == 0)

    def settle(self) -> None:
        """Everything ends; what is open is aborted by its timeout."""
        for one in self.producers:
            self.step(one.producer_id, PARTITIONS[0], "abort")
            while one.ending:
                self._mark(one)


class Reader:
    """Reads each log in its own time; what it commits is what `places` says, together with the units given so far."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.committed: dict[TopicPartition, Place] = {}
        self.kept: list[Unit] = []
        self.begin()

    def begin(self) -> None:
        """As after a crash: from what was committed."""
        self.assembler = Assembler()
        self.given: list[Unit] = []
        for partition in PARTITIONS:
            place = self.committed.get(partition)
            self.assembler.start(partition, place.offset if place else 0, place.metadata if place else None)

    def read(self, partition: TopicPartition, count: int) -> None:
        log = self.cluster.logs[partition]
        for offset in range(self.assembler.frontier(partition) or 0, len(log))[:count]:
            batch = log[offset]
            if batch.commit is not None:
                self.assembler.end(partition, offset, batch.producer_id, batch.epoch, commit=batch.commit)
            else:
                piece = Piece(partition, offset, offset + 1, 10, None)
                transactional = batch.producer_id != PLAIN
                self.assembler.add(piece, batch.producer_id, batch.epoch, batch.sequence, transactional=transactional)

    def ask(self, pending: list[tuple[int, Ends]], answer: bool) -> None:
        """A fence: the ends are those of some moment between question and answer, each partition's its own."""
        now = {partition: len(log) for partition, log in self.cluster.logs.items()}
        if self.assembler.wants_fence():
            pending.append((self.assembler.asked(), now))
        if pending and answer:
            events, then = pending.pop(0)
            mixed = {p: (now, then)[(p.partition + events) % 2][p] for p in PARTITIONS}
            self.assembler.fence(events, mixed)

    def take(self) -> None:
        while (unit := self.assembler.ready()) is not None:
            self.given.append(unit)

    def commit(self) -> None:
        self.committed = self.assembler.places()
        self.kept += self.given
        self.given = []


WEIGHTS = {"write": 30, "commit": 12, "abort": 3, "plain": 3, "read": 25, "ask": 8, "answer": 8, "take": 10}
RARE = {"commit positions": 4, "crash": 2}
Script = list[tuple[str, int, TopicPartition]]


def script_of(seed: int) -> Script:
    """Long and well mixed, which drawing each step apart is not."""
    chance = Random(seed)
    weights = WEIGHTS | RARE
    whats = chance.choices(list(weights), list(weights.values()), k=chance.randrange(20, 250))
    return [(what, chance.randrange(3), chance.choice(PARTITIONS)) for what in whats]


steps = st.integers(0, 2**32).map(script_of)


def play(cluster: Cluster, script: Script) -> Reader:
    """The script, and then calm until everything is read."""
    reader = Reader(cluster)
    pending: list[tuple[int, Ends]] = []
    for what, which, partition in script:
        if what in ("write", "commit", "abort"):
            cluster.step(which, partition, what)
        elif what == "plain":
            cluster.plain(partition)
        elif what == "read":
            reader.read(partition, which + 1)
        elif what in ("ask", "answer"):
            reader.ask(pending, what == "answer")
        elif what == "take":
            reader.take()
        elif what == "commit positions":
            reader.commit()
        else:
            reader.begin()
            pending.clear()
    cluster.settle()
    for _ in range(3 + len(PARTITIONS) + len(pending)):
        reader.ask(pending, answer=True)
        for partition in PARTITIONS:
            reader.read(partition, 1000)
        reader.take()
    reader.commit()
    return reader


def check(cluster: Cluster, reader: Reader, exact: bool) -> None:
    """Each committed transaction once and in one unit; each unit one transaction, or (TV1) several whole ones."""
    seen: Counter[tuple[int, int]] = Counter()
    for unit in reader.kept:
        places = {(piece.partition, piece.base_offset) for share in unit.shares for piece in share.pieces}
        owners = {cluster.owner[place] for place in places}
        for owner in owners:
            seen[owner] += 1
            assert cluster.committed[owner] <= places, f"{owner}: a part of it"
        assert places == set().union(*(cluster.committed[owner] for owner in owners)), "nothing aborted, nothing else"
        if exact:
            assert len(owners) == 1
        assert len(owners) >= unit.merged or unit.producer_id == PLAIN
    expected = {owner for owner, places in cluster.committed.items() if places}
    assert set(seen) == expected, "every committed transaction is given"
    assert set(seen.values()) <= {1}, "and none twice"


@given(steps)
@settings(max_examples=examples(600), deadline=None)
def test_tv2_gives_each_transaction_alone(script: Script) -> None:
    """KIP-890: also with crashes of the reader, who goes on from the places it committed with what it gave."""
    cluster = Cluster(3, [True])
    check(cluster, play(cluster, script), exact=True)


@given(steps)
@settings(max_examples=examples(600), deadline=None)
def test_tv1_gives_whole_ones_together_where_nothing_tells_them_apart(script: Script) -> None:
    cluster = Cluster(2, [False, True])
    check(cluster, play(cluster, script), exact=False)


@given(steps)
@settings(max_examples=examples(600), deadline=None)
def test_a_level_that_changes_between_transactions_cuts_none(script: Script) -> None:
    """Row T16: a producer goes from TV1 to TV2 under one epoch, and back."""
    cluster = Cluster(2, [False, True], changes=True)
    check(cluster, play(cluster, script), exact=False)


@given(steps)
@settings(max_examples=examples(100), deadline=None)
def test_tv1_in_one_partition_gives_each_transaction_alone(script: Script) -> None:
    """As long as each producer keeps to a partition of its own."""
    cluster = Cluster(3, [False])
    check(cluster, play(cluster, [(what, which, PARTITIONS[which]) for what, which, _ in script]), exact=True)


@given(
    st.integers(0, 2**40), st.dictionaries(st.integers(-1, 2**40), st.integers(0, 1000)), st.sets(st.integers(0, 99))
)
def test_notes_are_read_as_they_were_written(offset: int, ahead: dict[int, int], cuts: set[int]) -> None:
    given = {owner: offset + more for owner, more in ahead.items()}
    assert decode_metadata(offset, encode_metadata(offset, given, cuts)) == (given, cuts)
    assert (
        decode_metadata(offset, None) is decode_metadata(offset, "") is decode_metadata(offset, "fencepost/1 x") is None
    )
