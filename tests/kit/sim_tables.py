"""The tables of a cluster's database in memory."""

import threading
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import NamedTuple

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
        self.in_flight: list[Callable[[], object]] = []
        """Transactions that brokers sent over connections which broke; the database has not begun them."""
        self.lock = threading.RLock()

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
