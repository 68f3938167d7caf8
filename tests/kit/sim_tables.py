"""The tables of a cluster's database in memory."""

import itertools
import threading
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from fencepost.broker.cluster.engine import (
    SLOTS,
    Changed,
    ClaimLost,
    Conflict,
    Fenced,
    Head,
    Identity,
    LogIdTaken,
    Proposed,
    Row,
    Slot,
    Snapshot,
    StillAlive,
)
from fencepost.broker.cluster.history import AFTER_RESET, EPOCHS_OF_LIFE, Life


class BrokerRow(NamedTuple):
    """What the database knows of one broker."""

    incarnation: int
    session: int
    commit_seq: int
    bases: tuple[int, ...]
    """The answer of the last commit."""
    seen_ms: int
    left: bool
    addresses: str
    draining: bool = False
    ready_incarnation: int | None = None
    beats: int = 0
    """Its transactions that are no commits."""


class ObjectState(IntEnum):
    """An object begins as a claim. A commit makes it live; garbage collection marks it as doomed."""

    CLAIMED = 0
    LIVE = 1
    DOOMED = 2


class ObjectRow(NamedTuple):
    """What the database knows of one object."""

    state: ObjectState
    live: int
    """The number of rows that refer to it."""
    at_ms: int
    """When it was claimed."""


class SimLife(NamedTuple):
    """A life (history.py), and the start of the database in which it began."""

    life: Life
    start: int
    is_reset: bool


TABLES = ("brokers", "slots", "heads", "rows", "objects", "snapshots", "proposals", "answers", "slot_lives", "lives")


class SimDatabase:
    """The tables; `now_ms` is the database's clock."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.now_ms = now_ms
        self.id: str | None = None
        self.secret: bytes | None = None
        self.brokers: dict[int, BrokerRow] = {}
        self.slots = [Slot(number, None, 0) for number in range(SLOTS)]
        self.heads: dict[int, Head] = {}
        self.rows: dict[int, list[Row]] = {}
        """By log; in the order of their base offsets."""
        self.objects: dict[int, ObjectRow] = {}
        self.last_object = 0
        """It must not go back with the tables: PostgreSQL's ids are random, so no life of the database repeats one."""
        self.snapshots: dict[tuple[int, str], Snapshot] = {}
        self.proposals: list[Proposed] = []
        self.answers: dict[int, str] = {}
        self.slot_lives: dict[int, int | None] = {}
        """The life in which a slot was taken."""
        self.lives: list[SimLife] = []
        self.starts = 1
        self.in_flight: list[Callable[[], object]] = []
        """Transactions that brokers sent over connections which broke; the database has not begun them."""
        self.lock = threading.RLock()
        self._tokens = itertools.count()

    @property
    def position(self) -> int:
        """See history.py."""
        return sum(row.incarnation + row.session + row.commit_seq + row.beats for row in self.brokers.values())

    @property
    def life(self) -> int | None:
        """The number of the newest life."""
        return self.lives[-1].life.number if self.lives else None

    def begin_life(self, number: int, is_reset: bool = False) -> None:
        """From now on there is another life."""
        token = f"{self.starts} {self.now_ms()} {number} {next(self._tokens)}"
        position = AFTER_RESET if is_reset else self.position
        self.lives.append(SimLife(Life(number, token, position), self.starts, is_reset))

    def begin_life_of_start(self) -> None:
        """The life of this start of the database, if there is none yet: all leases begin anew."""
        if not self.lives or self.lives[-1].start != self.starts:
            if self.lives:
                for broker, row in self.brokers.items():
                    self.brokers[broker] = row._replace(seen_ms=self.now_ms())
            self.begin_life((self.life or 0) + 1)

    def epochs_on(self, slot: int) -> int:
        """By how much the epoch of a slot rises when it is taken."""
        return EPOCHS_OF_LIFE if (self.slot_lives.get(slot) or 1) < (self.life or 0) else 1

    def bound_times(self) -> None:
        """The clock may have stepped back: no lease and no claim lasts longer than from now on."""
        now = self.now_ms()
        for broker, row in self.brokers.items():
            self.brokers[broker] = row._replace(seen_ms=min(row.seen_ms, now))
        for number, held in self.objects.items():
            self.objects[number] = held._replace(at_ms=min(held.at_ms, now))

    def saved(self) -> dict[str, Any]:
        """A copy of all tables, for `go_back`."""
        with self.lock:
            return {name: getattr(self, name).copy() for name in TABLES} | {"last_object": self.last_object}

    def go_back(self, saved: dict[str, Any]) -> None:
        """The database starts again with these tables. What is in flight is lost, and connections are broken."""
        with self.lock:
            for name, value in saved.items():
                setattr(self, name, value.copy() if name in TABLES else value)
            self.in_flight.clear()
            self.starts += 1

    def deliver(self) -> list[object]:
        """Run all transactions in flight. Returns their answers, or their exceptions, which no broker sees."""
        answers: list[object] = []
        with self.lock:
            while self.in_flight:
                try:
                    answers.append(self.in_flight.pop(0)())
                except (Fenced, ClaimLost, Conflict, Changed, StillAlive, LogIdTaken) as error:
                    answers.append(error)
        return answers


def objects_of(rows: Sequence[Row]) -> list[int]:
    """The objects that rows refer to, each as often as they do."""
    return [row.placement.object_id for row in rows if row.placement.object_id != 0]


def fenced(identity: Identity, row: BrokerRow | None) -> Fenced:
    """The error of a broker that is not the newest."""
    newest = None if row is None else (row.incarnation, row.session, row.commit_seq)
    return Fenced(f"{identity} is fenced: incarnation, session and commit_seq in the database are {newest}")
