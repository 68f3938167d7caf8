"""Garbage collection: objects that no row refers to, and claims that no commit has used, are deleted.

Any broker may collect, also several at once. The database marks an object first, so that no commit can refer to it any
more; then the object is deleted; then the database forgets it. After a failure the next run repeats the rest.

A put may still complete after its claim was forgotten: its broker was paused, or the request was. The commit of that
object fails, but the object stays. `sweep` finds such objects, because the database does not know their ids. It lists
all objects, so the active broker does it rarely.
"""

import itertools
from collections.abc import Collection, Iterator
from typing import Protocol

from fencepost.broker.cluster.engine import Engine
from fencepost.broker.cluster.objects.claims import CLAIM_IDLE_MS

PAGE = 1000
STEP = 100_000
"""The most objects that one step marks."""


class Deletable(Protocol):
    """The objects of a cluster, as `Objects` and `RowBytes` have them."""

    def ids(self) -> Iterator[int]: ...
    def delete(self, object_ids: Collection[int]) -> None: ...


class Collector:
    """Deletes unused objects and claims that are older than `idle_ms`, step by step while the broker runs.

    An object is deleted one step after the one that marked it: until then, reads that began before its rows were
    replaced still find it.
    """

    def __init__(self, objects: Deletable, idle_ms: int = CLAIM_IDLE_MS) -> None:
        self.deleted = 0
        """A count of objects."""
        self._objects = objects
        self._idle_ms = idle_ms
        self._marked: set[int] = set()

    def step(self, engine: Engine) -> None:
        """Delete what the last step marked, and mark more. Blocks. Raises StoreUnavailable."""
        marked = set(engine.doomed(self._idle_ms, STEP))
        due = marked & self._marked
        for start in range(0, len(due), PAGE):
            page = sorted(due)[start : start + PAGE]
            self._objects.delete(page)
            engine.forget(page)
            self.deleted += len(page)
        self._marked = marked - due


def sweep(engine: Engine, objects: Deletable) -> Iterator[int]:
    """Delete objects that the database does not know, step by step: yields how many each step deleted. Lists all
    objects, and each step asks for one page of them. Blocks.

    Raises StoreUnavailable.
    """
    ids = objects.ids()
    while page := list(itertools.islice(ids, PAGE)):
        # These objects were put before this asks, and claimed before they were put.
        unknown = set(page) - engine.known(page)
        objects.delete(unknown)
        yield len(unknown)
