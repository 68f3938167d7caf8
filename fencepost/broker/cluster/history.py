"""Whether the database still has all that a broker knows from it: a database can go back in time.

It does so when a failover promotes a standby that lacks commits, or when an older copy or a backup takes its place. The
broker cannot see that in one row: its own commits may be there, while those of others that it has read are lost.

Each transaction with an identity raises a number of its broker. Their sum is the database's *position*. A broker keeps
the highest position at which it has read. Each start of the server begins a *life*, which keeps the position at which
it began. All transactions of the life come after that. So if each later life began at that position or above, the
database has everything that the broker knows; otherwise something is lost, whatever was committed since.
"""

import threading
from collections.abc import Sequence
from typing import NamedTuple

from fencepost.broker.cluster.engine import StoreUnavailable

AFTER_RESET = (1 << 63) - 1
"""The position of a life that began with `Engine.reset`."""
EPOCHS_OF_LIFE = 10_000
"""By so much a leader epoch rises when a slot is first taken in a life."""


class HistoryLost(StoreUnavailable):
    """The database lacks what this broker has read or committed. The broker has to drop all state and join again."""


class Life(NamedTuple):
    """What the first connection of a broker to a newly started server found there."""

    number: int
    """Rises."""
    token: str
    """Random: another life may get the same number after the database went back."""
    position: int
    """That of the database when the life began."""


class History:
    """What one run of a broker knows, over all its connections. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._life: Life | None = None
        self._position = 0
        self._lost: str | None = None

    @property
    def life(self) -> int:
        """The number of the newest known life; 0 before the first connection."""
        return 0 if self._life is None else self._life.number

    @property
    def follows_loss(self) -> bool:
        """Whether the newest known life began because something was lost."""
        return self._life is not None and self._life.position == AFTER_RESET

    @property
    def is_lost(self) -> bool:
        return self._lost is not None

    def lose(self, what: str) -> None:
        """Something is lost, found by other means."""
        with self._lock:
            self._lost = self._lost or what

    def check(self) -> int:
        """The highest known position, for `note`. Raises HistoryLost if something is known to be lost."""
        with self._lock:
            self._raise_if_lost()
            return self._position

    def connected(self, lives: Sequence[Life], known: int, position: int) -> None:
        """A new connection found these lives, from that with the number `life` on, and this position; `known` is what
        `check` returned before. Raises HistoryLost.
        """
        with self._lock:
            if self._life is not None and self._life not in lives:
                self._lost = f"its life {self._life.number} is not there"
            for later in lives:
                if self._life is not None and later.number > self._life.number and later.position < self._position:
                    self._lost = f"life {later.number} began at {later.position}, known is {self._position}"
            self._compare(known, position)
            self._raise_if_lost()
            self._life = lives[-1]

    def note(self, known: int, position: int) -> None:
        """A statement was answered at this position; `known` is what `check` returned before. Raises HistoryLost."""
        with self._lock:
            self._compare(known, position)
            self._raise_if_lost()

    def _compare(self, known: int, position: int) -> None:
        if position < known:
            self._lost = f"it is at {position}, known is {known}"
        self._position = max(self._position, position)

    def _raise_if_lost(self) -> None:
        if self._lost is not None:
            raise HistoryLost(f"the database lost commits that this broker knows: {self._lost}")
