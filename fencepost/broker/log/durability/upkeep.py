"""What a log does by the way and has to wait for: pieces of work that yield what must be synced before they go on.

The broker has it synced by a thread, so that the event loop waits for no disk; tests and tools do it on the spot.
"""

from collections.abc import Generator, Iterable
from typing import TypeVar

from fencepost.broker.log.durability.sync_threads import FlushThreads
from fencepost.broker.log.storage.store import SyncTask

T = TypeVar("T")
Steps = Generator[list[SyncTask], None, T]
"""Between two steps anything may happen to the log. A sync that fails is raised in the piece of work."""


def at_once(steps: Steps[T]) -> T:
    """Do all of it here and now. Raises what the work raises."""
    error: OSError | None = None
    try:
        while True:
            sync_targets = next(steps) if error is None else steps.throw(error)
            error = None
            try:
                sync_all(sync_targets)
            except OSError as failure:
                error = failure
    except StopIteration as end:
        result: T = end.value
        return result


async def done(steps: Steps[T], threads: FlushThreads | None) -> T:
    """Either of the two: on the spot where there are no threads."""
    return at_once(steps) if threads is None else await in_threads(steps, threads)


async def in_threads(steps: Steps[T], threads: FlushThreads) -> T:
    """Do it with the waiting in `threads`. Raises what the work raises."""
    error: OSError | None = None
    try:
        while True:
            sync_targets = next(steps) if error is None else steps.throw(error)
            failures = await threads.sync(sync_targets) if sync_targets else []
            error = failures[0][1] if failures else None
    except StopIteration as end:
        result: T = end.value
        return result


def syncing(sync_targets: list[SyncTask]) -> Steps[None]:
    """The piece of work that is nothing but this."""
    yield sync_targets


def sync_all(sync_targets: Iterable[SyncTask]) -> None:
    """One after the other, until one fails. Raises OSError."""
    for target in sync_targets:
        target.sync()
