"""The judge of a run of share groups: what members noted, held against the rules of KIP-932. No code of the product.

Each process writes a journal (history.py). Times are seconds of the machine's one monotonic clock.

    producers  ["ack", value, partition, offset]
    members    ["got", partition, offset, value, delivery_count, asked_at, received_at]
               ["hold", partition, offset, until]   before a release with a delay is asked
               ["ask", partition, offset, type, at]   ["answered", partition, offset, type, error, at]   ["end", at]
    workers    as members, but they acknowledge in transactions, whose output names partition and offset:
               ["pending", partition, offset, from, to]   ["committed", partition, offset, at]
    a reader   ["output", partition, offset]: in the committed output, in the end
    the run    ["broker killed", at]   ["member hit", label, at]   ["disk failed", from, to]

Rules, by the names of their violations:

- lost: a record that a producer was acknowledged is accepted or rejected in the end, or was delivered as often as
  `group.share.delivery.count.limit` allows. An acceptance without an answer may have been stored.
- delivered again: no fetch that began after an acceptance or a rejection was answered NONE brings the record.
- the delivery count fell: while the broker lives, each delivery counts more than those before it. A crash may forget
  deliveries that were not ended, and locks that ended just before it: the leader stores a count when the delivery ends
  (SharePartition.acknowledge, releaseAcquiredRecords, releaseAcquisitionLockOnTimeout). So after a crash the next
  delivery counts more than any whose release was answered NONE. So may a disk that fails: the leader forgets a
  share partition without sessions, and what of it could not be stored.
- with two members: none other gets a record while its lock surely holds, unless its member released it or was hit.
- before its time: a record that was released with a delay is not delivered again before that, if the release was
  answered NONE (docs/rules-queues.md, H1 and H3).
- another record: an offset has one value, that which the producer was acknowledged there.
- committed twice, committed in part: with transactions, a record is in the committed output once; and it is there if
  the commit was answered NONE. Such a commit is an acceptance for the other rules, and so is the output.
- delivered while pending: no fetch brings a record from the answer NONE of a TxnShareAcknowledge until the earliest
  end of the transaction: its worker asks for the end, a successor begins, or the timeout is over.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.kit.history import Verdict, events_of

ACCEPT, RELEASE, REJECT = 1, 2, 3
MARGIN_S = 0.02
UNSEEN_DELIVERIES = 2
"""The most deliveries of a record that may have ended with their member or broker before it was noted."""

Spot = tuple[int, int]
"""Partition and offset."""


class Delivery(NamedTuple):
    """One record as one member got it."""

    member: str
    value: str
    count: int
    asked_at: float
    received_at: float


@dataclass(slots=True)
class Story:
    """All that was noted in a run."""

    lock_s: float
    count_limit: int
    produced: dict[Spot, str] = field(default_factory=dict)
    deliveries: dict[Spot, list[Delivery]] = field(default_factory=lambda: defaultdict(list))
    asked: dict[Spot, set[int]] = field(default_factory=lambda: defaultdict(set))
    settled_at: dict[Spot, float] = field(default_factory=dict)
    """When the first acceptance or rejection was answered NONE."""
    released: dict[Spot, list[tuple[str, float, float]]] = field(default_factory=lambda: defaultdict(list))
    """Releases: by which member, when they were asked, and when they were answered NONE (infinity: never)."""
    asked_until: dict[tuple[str, Spot], float] = field(default_factory=dict)
    """Until when members last asked to hold records back, that are not answered yet."""
    held: dict[Spot, list[tuple[int, float, float]]] = field(default_factory=lambda: defaultdict(list))
    """After which delivery count records are held back, from when on, and until when."""
    ends: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """When members ended a session or a connection, were killed or frozen."""
    crashes: list[float] = field(default_factory=list)
    disk_failures: list[tuple[float, float]] = field(default_factory=list)
    refused: int = 0
    pending: dict[Spot, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    """From when to when a transaction surely had it."""
    committed: set[Spot] = field(default_factory=set)
    """What was acknowledged by a transaction whose commit was answered NONE."""
    output: Counter[Spot] = field(default_factory=Counter)
    """How often it is in the committed output."""

    def read(self, paths: Iterable[Path]) -> "Story":
        for path in paths:
            asked_at: dict[tuple[int, int, int], float] = {}
            for event in events_of(path):
                self.take(path.stem, event, asked_at)
        return self

    def take(self, name: str, event: Sequence[object], asked_at: dict[tuple[int, int, int], float]) -> None:
        """One event; `asked_at` is of this name, by partition, offset and type."""
        match event:
            case ["ack", str(value), int(partition), int(offset)]:
                self.produced[partition, offset] = value
            case ["got", int(partition), int(offset), str(value), int(count), float(asked), float(received)]:
                self.deliveries[partition, offset].append(Delivery(name, value, count, asked, received))
                self.asked_until.pop((name, (partition, offset)), None)
            case ["hold", int(partition), int(offset), float(until)]:
                self.asked_until[name, (partition, offset)] = until
            case ["ask", int(partition), int(offset), int(kind), float(at)]:
                self.asked[partition, offset].add(kind)
                asked_at[partition, offset, kind] = at
                if kind == RELEASE:
                    self.released[partition, offset].append((name, at, float("inf")))
            case ["answered", int(partition), int(offset), int(kind), int(error), float(at)]:
                self.refused += error != 0
                until = self.asked_until.pop((name, (partition, offset)), None) if kind == RELEASE else None
                if until is not None and error == 0:
                    mine = [one for one in self.deliveries[partition, offset] if one.member == name][-1]
                    if at < mine.asked_at + self.lock_s - MARGIN_S:  # else another may have it, or have accepted it
                        self.held[partition, offset].append((mine.count, asked_at[partition, offset, kind], until))
                if error == 0 and kind in (ACCEPT, REJECT):
                    self._settle((partition, offset), at)
                elif error == 0 and kind == RELEASE:
                    self.released[partition, offset].append((name, asked_at[partition, offset, kind], at))
            case ["pending", int(partition), int(offset), float(since), float(until)]:
                self.pending[partition, offset].append((since, until))
            case ["committed", int(partition), int(offset), float(at)]:
                self.committed.add((partition, offset))
                self._settle((partition, offset), at)
            case ["output", int(partition), int(offset)]:
                self.output[partition, offset] += 1
            case ["end", float(at)]:
                self.ends[name].append(at)
            case ["member hit", str(label), float(at)]:
                self.ends[label].append(at)
            case ["broker killed", float(at)]:
                self.crashes.append(at)
            case ["disk failed", float(began), float(ended)]:
                self.disk_failures.append((began, ended))
            case _:
                raise ValueError(f"{name}: no event of a run of share groups: {event}")

    def _settle(self, spot: Spot, at: float) -> None:
        self.settled_at[spot] = min(at, self.settled_at.get(spot, at))


def judge(story: Story) -> Verdict:
    """Hold a run against the rules."""
    verdict = Verdict()
    verdict.counts["produced"] = len(story.produced)
    verdict.counts["deliveries"] = sum(map(len, story.deliveries.values()))
    verdict.counts["settled"] = len(story.settled_at)
    verdict.counts["refused acknowledgements"] = story.refused
    verdict.counts["held back"] = sum(map(len, story.held.values()))
    verdict.counts["committed"] = len(story.output)
    verdict.add("lost", _lost(story, verdict))
    again, fell, two, other, early, pending = [], [], [], [], [], []
    for spot, deliveries in story.deliveries.items():
        deliveries.sort(key=lambda one: one.received_at)
        verdict.counts["delivered more than once"] += len(deliveries) > 1
        settled_at = story.settled_at.get(spot, float("inf"))
        again += [f"{spot} {one}, settled at {settled_at}" for one in deliveries if one.asked_at > settled_at]
        pending += [
            f"{spot} {one}, pending from {since} to {until}"
            for one in deliveries
            for since, until in story.pending[spot]
            if since < one.asked_at and one.received_at < until
        ]
        values = {one.value for one in deliveries} | ({story.produced[spot]} if spot in story.produced else set())
        other += [f"{spot} {sorted(values)}"] if len(values) > 1 else []
        early += [
            f"{spot} {one}, held back until {until}"
            for count, since, until in story.held[spot]
            for one in deliveries
            if one.count > count and since < one.received_at < until - MARGIN_S
        ]
        for at, later in enumerate(deliveries):
            for before in deliveries[:at]:
                if later.asked_at > before.received_at:
                    fell += _fell(story, spot, before, later)
                    two += _with_two(story, spot, before, later)
            fell += [
                f"{spot} {later}, released {before}"
                for before in deliveries
                if _is_released(story, spot, before, later.asked_at) and later.count <= before.count
            ]
    verdict.add("delivered again", again)
    verdict.add("the delivery count fell", fell)
    verdict.add("with two members", two)
    verdict.add("before its time", early)
    verdict.add("another record", other)
    verdict.add("delivered while pending", pending)
    verdict.add("committed twice", [f"{spot}: {count}" for spot, count in story.output.items() if count > 1])
    verdict.add("committed in part", [f"{spot}: no output" for spot in sorted(story.committed - story.output.keys())])
    return verdict


def _lost(story: Story, verdict: Verdict) -> list[str]:
    lost = []
    for spot, value in story.produced.items():
        if spot in story.settled_at or story.output[spot]:
            continue
        if story.asked[spot] & {ACCEPT, REJECT}:
            verdict.counts["settled or not: the answer is missing"] += 1
        elif max((one.count for one in story.deliveries[spot]), default=0) >= story.count_limit - UNSEEN_DELIVERIES:
            verdict.counts["delivered as often as allowed"] += 1
        else:
            lost.append(f"{spot} {value}: {story.deliveries[spot]}")
    return lost


def _fell(story: Story, spot: Spot, before: Delivery, later: Delivery) -> list[str]:
    crashed = any(before.asked_at <= at <= later.received_at for at in story.crashes)
    crashed |= any(before.asked_at <= ended and began <= later.received_at for began, ended in story.disk_failures)
    return [f"{spot} {before}, then {later}"] if not crashed and later.count <= before.count else []


def _is_released(story: Story, spot: Spot, delivery: Delivery, by: float) -> bool:
    """Whether the member's release of this very delivery was answered NONE before a time."""
    return any(
        name == delivery.member
        and delivery.received_at <= asked_at
        and answered_at < by
        and not any(
            one.member == name and delivery.received_at < one.received_at <= asked_at for one in story.deliveries[spot]
        )
        for name, asked_at, answered_at in story.released[spot]
    )


def _with_two(story: Story, spot: Spot, before: Delivery, later: Delivery) -> list[str]:
    """The lock began after the first member asked, and the second one got the record before the lock can have ended."""
    if before.member == later.member or later.received_at >= before.asked_at + story.lock_s - MARGIN_S:
        return []
    span = (before.asked_at, later.received_at)
    excuses = [*story.crashes, *story.ends[before.member]]
    excuses += [asked_at for name, asked_at, _ in story.released[spot] if name == before.member]
    if any(span[0] <= at <= span[1] for at in excuses):
        return []
    return [f"{spot} {before}, then {later}"]
