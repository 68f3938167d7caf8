"""Random commands for a cluster's database: likely ones, given what the database holds, and some that must fail."""

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fencepost.broker.cluster.engine import (
    SLOTS,
    Append,
    Commit,
    Identity,
    NewLog,
    Replacement,
    Row,
    RowKind,
    Snapshot,
)
from tests.kit.engine_worlds import name_of, row
from tests.kit.sim_tables import ObjectState, SimDatabase

BROKERS = (1, 2, 3)
LOGS = (3, 4, 5, SLOTS + 3, SLOTS + 4, 2 * SLOTS + 3)
SLOT_NUMBERS = (3, 4, 5, 6)
PRODUCER_IDS = (11, 12, 13, 14)
LEASES_MS = (0, 30_000, 90_000, 150_000)
"""The tests let minutes pass, so seconds that the test itself takes change nothing."""


class Command(NamedTuple):
    """A method of Engine and its arguments."""

    method: str
    arguments: tuple[Any, ...]


class Commands:
    """Draws commands; `database` is what they are likely to fit."""

    def __init__(self, seed: int, database: SimDatabase) -> None:
        self._random = random.Random(seed)
        self._database = database
        self._old: list[Identity] = [Identity(9, 1, 1)]
        self._kinds: tuple[tuple[int, Callable[[], Command]], ...] = (
            (60, self._commit),
            (4, self._join),
            (2, self._open_session),
            (4, self._take_over),
            (1, lambda: Command("release", (self._identity(),))),
            (3, lambda: Command("give_up", (self._identity(), self._random.choices(SLOT_NUMBERS, k=2)))),
            (2, lambda: Command("ready", (self._identity(),))),
            (1, lambda: Command("drain", (self._random.choice((*BROKERS, 9)), self._likely(0.5)))),
            (1, lambda: Command("secret", (self._random.choice((b"a", b"b")),))),
            (2, lambda: Command("renew", (self._identity(),))),
            (6, self._raise_start),
            (12, self._replace),
            (2, lambda: Command("drop", (self._identity(), self._random.sample(LOGS, 1)))),
            (6, lambda: Command("claim", (self._random.randrange(4),))),
            (4, lambda: Command("doomed", (self._random.choice(LEASES_MS), self._random.choice((2, 1000))))),
            (2, lambda: Command("forget", (self._some_objects(3),))),
            (1, lambda: Command("known", (self._some_objects(3),))),
            (2, lambda: Command("propose", (self._random.choice(LOGS), b"value"))),
            (1, lambda: Command("proposed", ())),
            (2, lambda: Command("answer", (self._identity(), self._random.randrange(30), "no"))),
            (1, lambda: Command("answer_to", (self._random.randrange(30),))),
            (1, lambda: Command("members", ())),
            (1, lambda: Command("heads", (self._random.choice((None, [3], [4, 5], [])),))),
            (1, lambda: Command("heads_of", (self._random.sample(LOGS, 2),))),
            (6, self._rows),
            (1, lambda: Command("snapshots", (LOGS, "producers"))),
            (1, lambda: Command("cluster_id", (self._random.choice("ab"),))),
        )

    def draw(self) -> Command:
        """The next command."""
        weights = [weight for weight, _ in self._kinds]
        ((_, kind),) = self._random.choices(self._kinds, weights)
        return kind()

    def minutes_that_pass(self) -> int:
        """Before the next command; mostly none."""
        return self._random.choice((1, 2)) if self._random.random() < 0.03 else 0

    def _likely(self, probability: float) -> bool:
        return self._random.random() < probability

    def _identity(self) -> Identity:
        """Of a broker that joined, mostly the newest."""
        brokers = self._database.brokers
        newest = [Identity(broker, held.incarnation, held.session) for broker, held in sorted(brokers.items())]
        self._old += [identity for identity in newest if identity not in self._old]
        return self._random.choice(newest if newest and self._likely(0.9) else self._old)

    def _join(self) -> Command:
        broker = self._random.choice(BROKERS)
        return Command("join", (broker, f"broker-{broker}", self._random.choice(LEASES_MS)))

    def _open_session(self) -> Command:
        return Command("open_session", (self._identity(),))

    def _take_over(self) -> Command:
        slots = self._random.choices(SLOT_NUMBERS, k=self._random.randrange(1, 4))
        return Command("take_over", (self._identity(), slots, self._random.choice(LEASES_MS)))

    def _some_objects(self, count: int) -> list[int]:
        return [self._random.randint(1, self._database.last_object + 2) for _ in range(count)]

    def _claimed(self) -> list[int]:
        objects = self._database.objects.items()
        return [number for number, held in sorted(objects) if held.state == ObjectState.CLAIMED]

    def _object(self) -> int:
        """For a row: mostly inline."""
        if self._likely(0.6):
            return 0
        return self._random.choice(self._claimed() or [0]) if self._likely(0.7) else self._some_objects(1)[0]

    def _listed(self, rows: Sequence[Row]) -> list[int]:
        """The objects that a commit makes live: mostly the right ones."""
        used = {added.placement.object_id for added in rows}
        listed = [number for number in self._claimed() if number in used]
        extra = self._some_objects(1) if self._likely(0.03) else []
        return sorted({*listed[self._likely(0.03) :], *extra})

    def _row(self, count: int, base: int = 0) -> Row:
        ids = self._random.sample(PRODUCER_IDS, self._random.randrange(3))
        added = row(count, *sorted(ids), base=base, object_id=self._object(), size_bytes=self._random.randrange(9))
        return added._replace(checksum=self._random.choice((None, 0, 2**32 - 1)))

    def _commit(self) -> Command:
        identity = self._identity()
        held = self._database.brokers.get(identity.broker)
        seq = (held.commit_seq if held is not None else 0) + (1 if self._likely(0.97) else self._random.randrange(3))
        appends = [self._append(log) for log in self._random.sample(LOGS, self._random.randrange(5))]
        return Command("commit", (Commit(identity, seq, appends, self._listed([one.row for one in appends])),))

    def _append(self, log: int) -> Append:
        head = self._database.heads.get(log)
        added = self._row(self._random.randrange(1, 4))
        if head is None:
            new_log = name_of(log) if self._likely(0.97) else None
            return Append(log, self._random.choice((0, 0, None)), self._likely(0.1), added, new_log)
        new_log = name_of(log) if self._likely(0.1) else None
        if new_log is not None and self._likely(0.1):
            new_log = NewLog("payments-0", new_log.topic_id)
        bases = [kept.base for kept in self._database.rows[log][-3:]]
        stale = self._random.choice([*bases, head.start, head.next + 1])
        expected = self._random.choice((None, head.next, head.next, head.next, head.next, stale))
        return Append(log, expected, self._likely(0.2), added, new_log)

    def _raise_start(self) -> Command:
        logs = self._random.sample(LOGS, 2)
        heads = self._database.heads
        ends = [heads[log].next if log in heads else 1 for log in logs]
        return Command(
            "raise_start",
            (self._identity(), [(log, self._random.randint(0, end + 1)) for log, end in zip(logs, ends, strict=True)]),
        )

    def _replace(self) -> Command:
        log = self._random.choice(sorted(self._database.heads) or LOGS)
        kept = self._database.rows.get(log, [])
        first = self._random.randrange(len(kept) + 1)
        old = kept[first : first + self._random.randrange(1, 4)]
        start, end = (old[0].base, old[-1].end) if old else (0, 1)
        bases = [one.base for one in old]
        if self._likely(0.1):
            start, end = max(0, start + self._random.randint(-1, 1)), end + self._random.randint(-1, 1)
        if self._likely(0.05):
            bases = bases[1:]
        rows = [self._row(end - start, start)] if end > start and self._likely(0.8) else []
        if rows and self._likely(0.7):
            rows = [rows[0]._replace(kind=RowKind.SEGMENT, heads=None, aborted=b"aborted")]
        snapshots = (
            [Snapshot(log, end + self._random.randint(-2, 2), "producers", b"state")] if self._likely(0.4) else []
        )
        return Command(
            "replace", (self._identity(), Replacement(log, start, end, bases, rows, self._listed(rows), snapshots))
        )

    def _rows(self) -> Command:
        start = self._random.randrange(30)
        limit = self._random.choice((1, 1000))
        arguments = (self._random.choice(LOGS), start, start + self._random.randrange(20), self._likely(0.5), limit)
        return Command("rows", arguments)
