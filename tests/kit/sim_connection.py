"""A connection to the specification of a cluster's database: its faults, and what is known of the history."""

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from fencepost.broker.cluster.engine import StoreUnavailable
from fencepost.broker.cluster.history import History
from tests.kit.sim_tables import SimDatabase


def no_fault(method: str) -> None:
    """The hook of an engine without faults."""


E = TypeVar("E", bound="SimConnection")
P = ParamSpec("P")
R = TypeVar("R")


def transaction(run: Callable[Concatenate[E, P], R]) -> Callable[Concatenate[E, P], R]:
    """Make a method atomic, with the faults of its engine."""

    @functools.wraps(run)
    def with_faults(engine: E, *arguments: P.args, **options: P.kwargs) -> R:
        with engine.database.lock:
            engine.before(run.__name__)
            if run.__name__ in engine.held:
                engine.database.in_flight.append(lambda: run(engine, *arguments, **options))
                raise StoreUnavailable("the connection to the database broke; a transaction is in flight")
            known = engine.begin()
            answer = run(engine, *arguments, **options)
            if engine.history is not None and run.__name__ != "commit":
                engine.history.note(known, engine.database.position)
            engine.after(run.__name__)
            return answer

    return with_faults


class SimConnection:
    """What all methods of SimEngine begin and end with."""

    def __init__(self, database: SimDatabase) -> None:
        self.database = database
        self.before: Callable[[str], None] = no_fault
        """Called with the method's name; if it raises, the transaction does not happen."""
        self.after: Callable[[str], None] = no_fault
        """Called with the method's name; if it raises, the transaction has happened, and its answer is lost."""
        self.held: set[str] = set()
        """Methods whose transactions stay in flight until SimDatabase.deliver; the caller gets StoreUnavailable."""
        self.history: History | None = None
        self._start: int | None = None
        """The start of the database at which this was connected."""

    def watch(self, history: History) -> None:
        """See `Engine`."""
        self.history, self._start = history, None

    def begin(self) -> int:
        """Connect if there is no connection; return the known position. Raises StoreUnavailable and HistoryLost."""
        database, history = self.database, self.history
        if history is None:
            return 0
        if self._start not in (None, database.starts):
            self._start = None
            raise StoreUnavailable("the connection broke: the database was started again")
        known = history.check()
        if self._start is None:
            database.begin_life_of_start()
            lives = [life for life, _, _ in database.lives if life.number >= history.life]
            history.connected(lives, known, database.position)
            self._start = database.starts
        return history.check()
