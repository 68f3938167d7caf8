"""Background work of a log that waits for the disk: generators that yield the targets to sync before they continue.

In the broker a thread syncs them, so that the event loop does not wait for the disk; tests and tools sync them inline.
"""

from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from fencepost.broker.log.durability.sync_threads import FlushThreads
from fencepost.broker.log.storage.store import SyncTask

AT_ONCE, THREADS = 64, 16
"""How many works are begun at a time, and the threads that sync their targets; fewer works need no threads."""

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


def together(works: Sequence[Steps[None]]) -> None:
    """Run works of one step each, many of them with threads: syncs of different files overlap. Raises OSError."""
    if len(works) <= AT_ONCE:
        for steps in works:
            at_once(steps)
        return
    with ThreadPoolExecutor(THREADS) as pool:
        for at in range(0, len(works), AT_ONCE):
            begun = [(steps, next(steps, None)) for steps in works[at : at + AT_ONCE]]
            list(pool.map(sync_all, [sync_targets or [] for _, sync_targets in begun]))
            for steps, _ in begun:
                next(steps, None)


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
