"""Background work of a log that waits for the disk: generators that yield the targets to sync before they continue.

In the broker a thread syncs them, so that the event loop does not wait for the disk; tests and tools sync them inline.
"""

from collections.abc import Generator, Iterable
from typing import TypeVar

from fencepost.broker.log.durability.sync_threads import FlushThreads
from fencepost.broker.log.storage.store import SyncTask

T = TypeVar("T")
Steps = Generator[list[SyncTask], None, T]
"""Between two steps the log may change in any way. A failed sync is raised inside the generator."""


def at_once(steps: Steps[T]) -> T:
    """Run all steps inline. Raises what the generator raises."""
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
    """Run the steps with `threads`, or inline if they are None."""
    return at_once(steps) if threads is None else await in_threads(steps, threads)


async def in_threads(steps: Steps[T], threads: FlushThreads) -> T:
    """Run the steps; `threads` sync the targets. Raises what the generator raises."""
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
    yield sync_targets


def sync_all(sync_targets: Iterable[SyncTask]) -> None:
    """Sync the targets one after another, until one fails. Raises OSError."""
    for target in sync_targets:
        target.sync()
