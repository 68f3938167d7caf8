"""The checker of failovers that lose commits: what clients were told, held against what every reader gets at the end.

An era is the time between two failovers. What was acknowledged in an era survives a later failover if it lies below
the end that the promoted database had for its log. Below that end, and in the last era, nothing may be lost, doubled,
changed or torn. Pure.
"""

import enum
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.kit.history import READ_COMMITTED, READ_UNCOMMITTED, Log, Place, Verdict


class Fate(enum.Enum):
    """What the program knows of its transaction."""

    OPEN = "open"
    """It never asked to commit: no record may be seen."""
    UNKNOWN = "unknown"
    """It asked to commit, and got no answer: all records or none."""
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(slots=True)
class Sent:
    """One record. `offset` and `era` are those of its acknowledgement."""

    place: Place
    value: str
    offset: int | None = None
    era: int = 0


@dataclass(slots=True)
class Transaction:
    """One transaction. `era` is that of the answer to EndTxn."""

    name: str
    sent: list[Sent] = field(default_factory=list)
    fate: Fate = Fate.OPEN
    era: int = 0


@dataclass(slots=True)
class Kept:
    """What the database had right after a promotion, before any broker reached it."""

    ends: Mapping[Place, int]
    stable: Mapping[Place, int]
    """Last stable offsets: transactions below have ended."""


View = Mapping[str, Mapping[Place, Log]]
"""All logs as one reader got them, by isolation level."""


@dataclass(slots=True)
class Played:
    """All that the checker needs. Failover number n ends era n."""

    sent: Sequence[Sent]
    transactions: Sequence[Transaction]
    kept: Sequence[Kept]
    views: Mapping[str, View]


def check(played: Played) -> Verdict:
    """The verdict has no violation if every failover lost only what it may lose."""
    verdict = Verdict()
    for name, view in played.views.items():
        found = Verdict()
        _check_records(played, view, found)
        _check_transactions(played, view, found)
        verdict.counts.update(found.counts)
        verdict.violations += [f"{name}: {violation}" for violation in found.violations]
    names = list(played.views)
    for name in names[1:]:
        changed = [place for place in played.views[name][READ_UNCOMMITTED] if _differs(played, names[0], name, place)]
        verdict.add(f"{name} differs from {names[0]}", changed)
    return verdict


def _differs(played: Played, one: str, other: str, place: Place) -> bool:
    return any(
        played.views[one][isolation].get(place) != played.views[other][isolation].get(place)
        for isolation in (READ_UNCOMMITTED, READ_COMMITTED)
    )


def _bound(ends: Sequence[Mapping[Place, int]], era: int, place: Place) -> int | None:
    """What was acknowledged in the era is kept below this offset; None: all of it."""
    return min((end.get(place, 0) for end in ends[era:]), default=None)


def _check_records(played: Played, view: View, verdict: Verdict) -> None:
    """Each acknowledged record that may not be lost has its offset and its bytes, and no record is there twice."""
    ends = [kept.ends for kept in played.kept]
    everything = {(place, offset): value for place, log in view[READ_UNCOMMITTED].items() for offset, value in log}
    known = {(one.place[0], one.value) for one in played.sent}
    lost, changed, kept = [], [], 0
    for one in played.sent:
        if one.offset is None:
            continue
        bound = _bound(ends, one.era, one.place)
        if bound is not None and one.offset >= bound:
            continue
        kept += 1
        found = everything.get((one.place, one.offset))
        what = f"{one.place} offset {one.offset} acknowledged in era {one.era} of {len(ends)} ({one.value[:24]}...)"
        if found is None:
            lost.append(what)
        elif found != one.value:
            changed.append(f"{what} is {found[:24]}...")
    times = Counter((place[0], value) for place, log in view[READ_UNCOMMITTED].items() for _, value in log)
    verdict.counts["acknowledged records that must be there"] = kept
    verdict.counts["records at the end"] = len(everything)
    verdict.add("an acknowledged record is lost", lost)
    verdict.add("an acknowledged record is changed", changed)
    verdict.add("a record is there twice", [f"{topic} {value[:24]}..." for (topic, value), n in times.items() if n > 1])
    verdict.add("a record was never sent", [f"{topic} {value[:24]}..." for topic, value in times.keys() - known])
    committed = [(place, one) for place, log in view[READ_COMMITTED].items() for one in log]
    wrong = [(place, offset) for place, (offset, value) in committed if everything.get((place, offset)) != value]
    verdict.add("read_committed shows what read_uncommitted does not", wrong)


def _check_transactions(played: Played, view: View, verdict: Verdict) -> None:
    """Each transaction is whole or absent, and whole if its commit may not be lost. So are plain records."""
    stable = [kept.stable for kept in played.kept]
    committed = {(place, value) for place, log in view[READ_COMMITTED].items() for _, value in log}
    torn, lost, leaked = [], [], []
    inside: set[int] = set()
    for one in played.transactions:
        inside.update(id(sent) for sent in one.sent)
        there = sum((sent.place, sent.value) in committed for sent in one.sent)
        what = f"{one.name} {one.fate.value} in era {one.era} of {len(stable)}, {there} of {len(one.sent)} records"
        verdict.counts[f"transactions {one.fate.value}"] += 1
        if 0 < there < len(one.sent):
            torn.append(what)
        elif there and one.fate in (Fate.OPEN, Fate.ABORTED):
            leaked.append(what)
        elif one.fate is Fate.COMMITTED and there < len(one.sent) and _ended(one, stable):
            lost.append(what)
    hidden = []
    for sent in played.sent:
        if sent.offset is not None and id(sent) not in inside and (sent.place, sent.value) not in committed:
            bound = _bound(stable, sent.era, sent.place)
            if bound is None or sent.offset < bound:
                hidden.append(f"{sent.place} offset {sent.offset}")
    verdict.add("a transaction is torn", torn)
    verdict.add("a committed transaction is lost", lost)
    verdict.add("a transaction that was not committed is shown", leaked)
    verdict.add("a record outside of transactions is hidden from read_committed", hidden)


def _ended(one: Transaction, stable: Sequence[Mapping[Place, int]]) -> bool:
    """Whether every later database has the end of this transaction."""
    for sent in one.sent:
        bound = _bound(stable, one.era, sent.place)
        if bound is not None and (sent.offset is None or sent.offset >= bound):
            return False
    return True
