"""A database of a cluster for tests, and short ways to write rows and commits."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from fencepost.broker.cluster.engine import (
    Append,
    Commit,
    Engine,
    Identity,
    NewLog,
    Placement,
    Row,
    RowKind,
    Session,
)
from tests.kit.clocks import StillClock
from tests.kit.sim_engine import SimEngine
from tests.kit.sim_tables import SimDatabase

LEASE_MS = 10_000


class World(Protocol):
    """One database."""

    def engine(self) -> Engine:
        """A new connection."""

    def age(self, ms: int) -> None:
        """Let everything in the database be that much older: leases and claims. Below 0 the clock steps back."""

    def save(self) -> None:
        """Keep the tables as they are, for `go_back`."""

    def go_back(self) -> None:
        """The server starts again, with the saved tables: what was committed since is lost."""

    def start_again(self) -> None:
        """The server starts again, and has lost nothing."""


class SimWorld:
    """The specification."""

    def __init__(self) -> None:
        self._clock = StillClock()
        self.database = SimDatabase(self._clock.now_ms)

    def engine(self) -> SimEngine:
        return SimEngine(self.database)

    def age(self, ms: int) -> None:
        self._clock.ms += ms

    def save(self) -> None:
        self._saved = self.database.saved()

    def go_back(self) -> None:
        self.database.go_back(self._saved)

    def start_again(self) -> None:
        self.database.go_back(self.database.saved())


class Broker(NamedTuple):
    """A broker that joined: its connection and its session."""

    engine: Engine
    session: Session

    @property
    def identity(self) -> Identity:
        return self.session.identity

    def commit(self, seq: int, *appends: Append, objects: Sequence[int] = ()) -> tuple[int, ...]:
        """Commit with this sequence number."""
        return self.engine.commit(Commit(self.identity, seq, appends, objects))


def joined(world: World, broker: int, lease_ms: int = LEASE_MS) -> Broker:
    """A broker on a connection of its own."""
    engine = world.engine()
    return Broker(engine, engine.join(broker, f'["broker-{broker}:9092"]', lease_ms))


def row(count: int = 1, *producer_ids: int, base: int = 0, object_id: int = 0, size_bytes: int = 5) -> Row:
    """A run; its bytes are inline if it has no object."""
    inline = b"b" * size_bytes if object_id == 0 else None
    placement = Placement(object_id, 0, size_bytes)
    return Row(base, count, RowKind.RUN, 0, placement, 1000, 1, tuple(producer_ids), b"heads", b"", inline)


def append(log: int, expected: int | None, added: Row | None = None, fixed: bool = False) -> Append:
    """One record for a log that is there already, or that the row with the expectation 0 makes."""
    new_log = name_of(log) if expected == 0 else None
    return Append(log, expected, fixed, row() if added is None else added, new_log)


def name_of(log: int) -> NewLog:
    """What a test's log is called."""
    return NewLog(f"orders-{log}", log.to_bytes(16, "big"))
