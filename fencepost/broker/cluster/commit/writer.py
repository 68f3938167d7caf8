"""A broker's commits, one after the other, across broken connections."""

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NoReturn

from fencepost.broker.cluster.engine import (
    Append,
    Commit,
    Conflict,
    Engine,
    Fenced,
    Identity,
    Session,
    StoreUnavailable,
)
from fencepost.broker.cluster.history import History, HistoryLost
from fencepost.coordinator.histogram import Histogram

logger = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 1.0
MANY_CONFLICTS = 10
"""This many conflicts without a commit between them are reported: other brokers' rows explain a few."""


class Stopped(Exception):
    """The broker stops while the database is unavailable: what it did not commit is not acknowledged either."""


class WriterCounters:
    """Totals since the process joined."""

    def __init__(self) -> None:
        self.commits = Histogram()
        """The round trips of commits that happened."""
        self.conflicts = 0
        self.reconnects = 0


class Writer:
    """Commits for one incarnation of a broker; its methods block, and may be called from any thread.

    While the database is unavailable they wait. Then the broker opens a new session, whose answer says whether the
    last commit happened. Every method raises Fenced, always after the first time, and Stopped.
    """

    def __init__(
        self,
        engine: Engine,
        session: Session,
        monotonic: Callable[[], float] = time.monotonic,
        history: History | None = None,
    ) -> None:
        self.engine = engine
        """The connection; only inside of `change`."""
        self.history = History() if history is None else history
        """What this incarnation knows of the database."""
        self._identity = session.identity
        self._seq = session.commit_seq
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._stops_at = math.inf
        self.fenced = False
        """Another broker has this one's slots, as far as this process knows."""
        self.conflict: str | None = None
        """Why commits conflict again and again."""
        self._conflicts_in_a_row = 0
        self.renewed_at = monotonic()
        """When the last successful commit or renewal was sent."""
        self.counters = WriterCounters()
        self.unavailable: str | None = None
        """Why the database cannot be reached now."""

    @property
    def identity(self) -> Identity:
        """The current identity; its session changes when the broker connects again."""
        return self._identity

    def now(self) -> float:
        return self._monotonic()

    @property
    def idle_seconds(self) -> float:
        return self.now() - self.renewed_at

    def stop(self, after_s: float = 0.0) -> None:
        """Let no method wait for a store any more, or only for `after_s` seconds from now on."""
        if after_s > 0:
            self._stops_at = min(self._stops_at, self._monotonic() + after_s)
        else:
            self._stopping.set()

    def commit(self, appends: Sequence[Append], objects: Sequence[int] = ()) -> tuple[int, ...]:
        """Commit these rows; return their base offsets. Also raises Conflict and ClaimLost: then nothing changed."""
        if self._conflicts_in_a_row >= MANY_CONFLICTS:
            self._stops_within(FIRST_PAUSE_SECONDS)
        if self._stopping.is_set() or self._monotonic() >= self._stops_at:
            raise Stopped("the broker stops")
        with self._lock:
            commit = Commit(self._identity, self._seq + 1, appends, objects)
            while True:
                began = self._monotonic()
                try:
                    bases = self._fencing(partial(self.engine.commit, commit))
                except Conflict as error:
                    self._note_conflict(error)
                    raise
                except StoreUnavailable as error:
                    session = self._open_session(error)
                    if session.commit_seq != commit.seq:
                        commit = commit._replace(identity=session.identity)
                        continue
                    bases = session.bases
                self._seq = commit.seq
                self.renewed_at = began
                self.unavailable = self.conflict = None
                self._conflicts_in_a_row = 0
                self.counters.commits.add(self._monotonic() - began)
                return bases

    def _note_conflict(self, error: Conflict) -> None:
        self.counters.conflicts += 1
        count = self._conflicts_in_a_row = self._conflicts_in_a_row + 1
        if count >= MANY_CONFLICTS:
            self.conflict = f"{count} commits failed one after the other: {error}"
            if count & (count - 1) == 0 or count == MANY_CONFLICTS:
                logger.warning("nothing is committed, the broker tries again: %s", self.conflict)

    def change(self, change: Callable[[Identity], None]) -> None:
        """Run a fenced change of the engine that may be repeated, again after each break of the connection."""
        with self._lock:
            while True:
                try:
                    self._fencing(partial(change, self._identity))
                except StoreUnavailable as error:
                    self._open_session(error)
                else:
                    return

    def renew(self) -> None:
        began = self._monotonic()
        self.change(self.engine.renew)
        self.renewed_at = max(self.renewed_at, began)

    def pause(self, why: StoreUnavailable) -> None:
        """Wait a moment before something is tried again, because a store is unavailable."""
        if isinstance(why, HistoryLost):
            self._lose(str(why))
        self.unavailable = str(why)
        if self._stops_within(LONGEST_PAUSE_SECONDS / 4):
            raise Stopped(str(why))

    def _stops_within(self, seconds: float) -> bool:
        """Wait for `seconds`, but not after `stop`. Returns whether nothing may wait any more."""
        return self._stopping.wait(seconds) or self._monotonic() >= self._stops_at

    def _fencing(self, call: "Callable[[], object]") -> "tuple[int, ...]":
        if self.fenced:
            raise Fenced(f"broker {self._identity.broker} was taken over")
        try:
            answer = call()
        except Fenced:
            self.fenced = True
            raise
        return answer if isinstance(answer, tuple) else ()

    def _open_session(self, why: StoreUnavailable) -> Session:
        """A new session, as soon as the database can be reached."""
        if isinstance(why, HistoryLost):
            self._lose(str(why))
        pause = FIRST_PAUSE_SECONDS
        self.unavailable = str(why)
        logger.warning("the cluster's database is unavailable, commits wait for it: %s", why)
        while True:
            if self._stops_within(pause):
                raise Stopped(str(why))
            try:
                session = self.engine.open_session(self._identity)
            except HistoryLost as error:
                self._lose(str(error))
            except StoreUnavailable as error:
                self.unavailable = str(error)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            except Fenced:
                self.fenced = True
                raise
            else:
                if session.commit_seq < self._seq:
                    self._lose(f"the database lost commits: it has {session.commit_seq} of {self._seq}")
                self._identity, self.unavailable = session.identity, None
                self.counters.reconnects += 1
                logger.warning("the cluster's database is available again")
                return session

    def _lose(self, what: str) -> NoReturn:
        self.fenced = True
        self.history.lose(what)
        raise Fenced(what)
