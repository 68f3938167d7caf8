"""What everybody did and saw in a chaos run, and the checker that says whether exactly-once held.

Each process of a run writes one journal: JSON arrays, one per line, handed to the operating system before the thing
they tell of happens (or after it was answered), so that a killed process leaves the truth behind.

    writers   ["begin", txn] ["send", txn, topic, partition, value] ["ask", txn] ["committed", txn] ["aborted", txn]
              ["ack", value, partition, offset]        txn is null for a producer without transactions
    readers   ["reader", isolation] ["pass", topic, partition, offset] ["read", topic, partition, offset, value]
              ["bounds", topic, partition, high_watermark, last_stable_offset]
"""

import enum
import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

Place = tuple[str, int]
"""Topic and partition."""
Log = list[tuple[int, str]]
"""Offsets and values of one partition, in order."""
READ_COMMITTED, READ_UNCOMMITTED = "read_committed", "read_uncommitted"
_SHOWN = 5


class Journal:
    """The journal of one process; each line is in the file when `write` returns, whatever kills the process then."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, *event: Any) -> None:
        """Add one event."""
        os.write(self._descriptor, json.dumps(event, separators=(",", ":")).encode() + b"\n")

    def write_many(self, events: Iterable[Sequence[Any]]) -> None:
        """Add several events at once."""
        data = b"".join(json.dumps(event, separators=(",", ":")).encode() + b"\n" for event in events)
        if data:
            os.write(self._descriptor, data)


def events_of(path: Path) -> Iterator[list[Any]]:
    """The events of a journal; a last line that a kill has cut off is left out."""
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield json.loads(line)


class Fate(enum.Enum):
    """What the program knows of its transaction."""

    OPEN = "open"
    """Never asked to commit: it must not be seen."""
    UNKNOWN = "unknown"
    """Asked to commit, nobody answered: all or nothing."""
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(slots=True)
class Transaction:
    """One transaction as its writer tells it."""

    fate: Fate = Fate.OPEN
    sent: list[tuple[Place, str]] = field(default_factory=list)


@dataclass(slots=True)
class Writer:
    """One incarnation of a producer."""

    name: str
    transactions: dict[int, Transaction] = field(default_factory=dict)
    loose: dict[str, Place] = field(default_factory=dict)
    """What was sent outside transactions."""
    acknowledged: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Its partition and offset, as the broker answered."""
    order: dict[Place, list[str]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def read(cls, path: Path) -> "Writer":
        """The writer of a journal."""
        writer = cls(path.stem)
        for event in events_of(path):
            writer._apply(event)
        return writer

    def _apply(self, event: list[Any]) -> None:
        match event:
            case ["begin", int(number)]:
                self.transactions[number] = Transaction()
            case ["send", number, str(topic), int(partition), str(value)]:
                place = (topic, partition)
                self.order[place].append(value)
                if number is None:
                    self.loose[value] = place
                else:
                    self.transactions[number].sent.append((place, value))
            case ["ask", int(number)]:
                self.transactions[number].fate = Fate.UNKNOWN
            case ["committed", int(number)]:
                self.transactions[number].fate = Fate.COMMITTED
            case ["aborted", int(number)]:
                self.transactions[number].fate = Fate.ABORTED
            case ["ack", str(value), int(partition), int(offset)]:
                self.acknowledged[value] = (partition, offset)
            case _:
                raise ValueError(f"{self.name}: no event of a writer: {event}")


@dataclass(slots=True)
class Reader:
    """One incarnation of a reader: passes over partitions, each from an offset on without a gap."""

    name: str
    isolation: str = READ_COMMITTED
    passes: list[tuple[Place, int, Log]] = field(default_factory=list)
    bounds: dict[Place, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    """High watermark and last stable offset, as they were seen one after the other."""

    @classmethod
    def read(cls, path: Path) -> "Reader":
        """The reader of a journal."""
        reader = cls(path.stem)
        current: dict[Place, Log] = {}
        for event in events_of(path):
            match event:
                case ["reader", str(isolation)]:
                    reader.isolation = isolation
                case ["pass", str(topic), int(partition), int(offset)]:
                    current[topic, partition] = []
                    reader.passes.append(((topic, partition), offset, current[topic, partition]))
                case ["read", str(topic), int(partition), int(offset), str(value)]:
                    current[topic, partition].append((offset, value))
                case ["bounds", str(topic), int(partition), int(high_watermark), int(last_stable)]:
                    reader.bounds[topic, partition].append((high_watermark, last_stable))
                case _:
                    raise ValueError(f"{reader.name}: no event of a reader: {event}")
        return reader


@dataclass(slots=True)
class History:
    """A whole run. `finals` are the logs at the end, by reader's name; the first of an isolation is the reference."""

    writers: list[Writer]
    readers: list[Reader]
    finals: dict[str, dict[str, dict[Place, Log]]]
    """isolation -> reader -> partition -> log."""
    transforms: list[tuple[str, str]]
    """Input and output topic: the output must be the input, partition by partition."""


@dataclass(slots=True)
class Verdict:
    """What the checker found; `counts` says how much it had to look at."""

    violations: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, rule: str, found: Sequence[Any]) -> None:
        """Note what breaks a rule; nothing where `found` is empty."""
        if found:
            some = "; ".join(str(one) for one in found[:_SHOWN])
            self.violations.append(f"{rule}: {len(found)} times: {some}")
            self.counts["violations"] += len(found)


def check(history: History) -> Verdict:
    """Hold a run against the rules; the verdict has no violations where exactly-once was true."""
    verdict = Verdict()
    committed = _reference(history, READ_COMMITTED, verdict)
    everything = _reference(history, READ_UNCOMMITTED, verdict)
    _check_transactions(history, committed, verdict)
    _check_loose(history, committed, verdict)
    _check_order(history, committed, everything, verdict)
    _check_readers(history, {READ_COMMITTED: committed, READ_UNCOMMITTED: everything}, verdict)
    _check_bounds(history, verdict)
    _check_transforms(history, committed, verdict)
    return verdict


def _reference(history: History, isolation: str, verdict: Verdict) -> dict[Place, Log]:
    """The log all readers agree on at the end, each value in it once (but where it was copied to another topic)."""
    finals = history.finals[isolation]
    reference = next(iter(finals.values()))
    for name, logs in finals.items():
        differing = [
            f"{place}: {_difference(reference.get(place, []), logs.get(place, []))}"
            for place in sorted(reference.keys() | logs.keys())
            if reference.get(place, []) != logs.get(place, [])
        ]
        verdict.add(f"at the end {name} reads ({isolation}) something else", differing)
    verdict.counts[f"records {isolation}"] = sum(len(log) for log in reference.values())
    if isolation == READ_COMMITTED:
        seen: Counter[tuple[str, str]] = Counter()
        for (topic, _), log in reference.items():
            seen.update((topic, value) for _, value in log)
        verdict.add("delivered more than once", [key for key, times in seen.items() if times > 1])
    return reference


def _check_transactions(history: History, committed: Mapping[Place, Log], verdict: Verdict) -> None:
    """Committed: everything. Open or aborted: nothing. Unknown: one of the two. And nothing that nobody sent."""
    present = {(place, value) for place, log in committed.items() for _, value in log}
    lost, leaked, torn = [], [], []
    for writer in history.writers:
        for number, transaction in writer.transactions.items():
            verdict.counts[f"transactions {transaction.fate.value}"] += 1
            missing = [one for one in transaction.sent if one not in present]
            there = len(transaction.sent) - len(missing)
            what = f"{writer.name} transaction {number} ({there} of {len(transaction.sent)} there, e.g. {missing[:1]})"
            if transaction.fate is Fate.COMMITTED and missing:
                lost.append(what)
            elif transaction.fate in (Fate.OPEN, Fate.ABORTED) and there:
                leaked.append(f"{what} {transaction.fate.value}")
            elif missing and there:
                torn.append(what)
            elif transaction.fate is Fate.UNKNOWN:
                verdict.counts["unknown, committed" if there else "unknown, aborted"] += 1
    verdict.add("a committed transaction is not there completely", lost)
    verdict.add("records of a transaction that was not committed are delivered", leaked)
    verdict.add("a transaction is torn", torn)
    outputs = {output for _, output in history.transforms}
    sent = {one for writer in history.writers for txn in writer.transactions.values() for one in txn.sent}
    sent |= {(place, value) for writer in history.writers for value, place in writer.loose.items()}
    verdict.add("delivered, but never sent", [one for one in present - sent if one[0][0] not in outputs])


def _check_loose(history: History, committed: Mapping[Place, Log], verdict: Verdict) -> None:
    """What an idempotent producer was told to be written stands at the offset it was told."""
    where = {
        (topic, value): (partition, offset) for (topic, partition), log in committed.items() for offset, value in log
    }
    wrong = []
    for writer in history.writers:
        verdict.counts["acknowledged without transaction"] += len(writer.acknowledged)
        for value, told in writer.acknowledged.items():
            found = where.get((writer.loose[value][0], value))
            if found is None or (told[1] >= 0 and found != told):
                wrong.append(f"{writer.name} {value}: acknowledged at {told}, found at {found}")
    verdict.add("an acknowledged record is not where it should be", wrong)


def _check_order(
    history: History, committed: Mapping[Place, Log], everything: Mapping[Place, Log], verdict: Verdict
) -> None:
    """Per producer and partition the log has the order of sending, in committed and in all records."""
    wrong = []
    for logs in (committed, everything):
        position = {(place, value): offset for place, log in logs.items() for offset, value in log}
        for writer in history.writers:
            for place, values in writer.order.items():
                offsets = [position[place, value] for value in values if (place, value) in position]
                wrong += [f"{writer.name} {place} at {b}" for a, b in pairwise(offsets) if b <= a]
    verdict.add("out of order", wrong)


def _check_readers(history: History, logs: Mapping[str, Mapping[Place, Log]], verdict: Verdict) -> None:
    """Every pass of every reader saw exactly what stands there at the end: nothing skipped, doubled, changed, gone."""
    wrong = []
    for reader in history.readers:
        final = logs[reader.isolation]
        for place, start, seen in reader.passes:
            verdict.counts[f"read along {reader.isolation}"] += len(seen)
            if not seen:
                continue
            expected = [one for one in final.get(place, []) if start <= one[0] <= seen[-1][0]]
            if expected != seen:
                wrong.append(f"{reader.name} {place} from {start}: {_difference(expected, seen)}")
    verdict.add("what a reader saw is not what stands there at the end", wrong)


def _check_bounds(history: History, verdict: Verdict) -> None:
    """High watermark and LSO never go back, not even over a crash: what a reader may see is already durable."""
    wrong = []
    for reader in history.readers:
        for place, bounds in reader.bounds.items():
            verdict.counts["bounds seen"] += len(bounds)
            wrong += [f"{reader.name} {place} LSO {lso} > HW {hw}" for hw, lso in bounds if lso > hw]
            for before, after in pairwise(bounds):
                if after[0] < before[0] or after[1] < before[1]:
                    wrong.append(f"{reader.name} {place} (HW, LSO) {before} -> {after}")
    verdict.add("a bound went back", wrong)


def _check_transforms(history: History, committed: Mapping[Place, Log], verdict: Verdict) -> None:
    """Consume-transform-produce: the output is the input, each record once and in order."""
    wrong = []
    for source, target in history.transforms:
        partitions = sorted(partition for topic, partition in committed if topic == source)
        for partition in partitions:
            given = [value for _, value in committed[source, partition]]
            made = [value for _, value in committed.get((target, partition), [])]
            verdict.counts["transformed"] += len(made)
            if given != made:
                wrong.append(f"{source} -> {target} {partition}: {_difference(given, made)}")
    verdict.add("the output is not the input", wrong)


def _difference(expected: Sequence[Any], seen: Sequence[Any]) -> str:
    for index, (one, other) in enumerate(zip(expected, seen, strict=False)):
        if one != other:
            return f"at index {index} {other} instead of {one} ({len(seen)} of {len(expected)})"
    shorter = min(len(expected), len(seen))
    return f"{len(seen)} instead of {len(expected)}, differing from {[*expected[shorter:], *seen[shorter:]][:1]} on"
