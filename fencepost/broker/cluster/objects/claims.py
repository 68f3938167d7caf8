"""Claimed ids for new objects, taken from the database in blocks."""

import secrets
import threading
import time
from collections.abc import Callable

from fencepost.broker.cluster.engine import Engine

CLAIM_IDLE_MS = 60 * 60 * 1000
"""Garbage collection may delete a claim of this age (`Engine.doomed`), and the object that was put under it."""
FRESH_PART = 6
"""An id is handed out in the first such part of the age only. The rest is for the put and the commit."""
BLOCK = 100
ID_BITS, IN_BLOCK_BITS = 63, 7
"""An id is random but for its last bits. Those of one block are neighbours, also in the database's index."""


def random_ids(count: int) -> int:
    """The first of `count` ids for a claim. A database that went back in time does not give an id again that it gave
    before, and a copy of it does not give those of the original: objects never share a name.
    """
    return (secrets.randbits(ID_BITS - IN_BLOCK_BITS) << IN_BLOCK_BITS) + 1


class ClaimPool:
    """Hands out claimed ids, each once. Threads may share it.

    Ids that grow old here are dropped, and garbage collection forgets them. This makes ClaimLost rare, no more: the
    database guarantees that no commit refers to a deleted object.
    """

    def __init__(
        self, engine: Engine, max_age_ms: int = CLAIM_IDLE_MS, now: Callable[[], float] = time.monotonic
    ) -> None:
        """`max_age_ms`: garbage collection deletes claims of that age."""
        self._engine = engine
        self._fresh_s = max_age_ms / 1000 / FRESH_PART
        self._now = now
        self._ids: list[int] = []
        self._claimed_at = 0.0
        self._lock = threading.Lock()

    def take(self) -> int:
        """An id to put one object under. Blocks while it claims a new block. Raises StoreUnavailable."""
        with self._lock:
            begun = self._now()
            while not self._ids or begun - self._claimed_at > self._fresh_s:
                self._ids = sorted(self._engine.claim(BLOCK), reverse=True)
                self._claimed_at = begun
            return self._ids.pop()

    def forget(self) -> None:
        """Hand out none of the ids that are here: the database may have lost their claims with the time since."""
        with self._lock:
            self._ids = []
