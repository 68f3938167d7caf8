"""Brokers that are wrong in one way each, to see that the worlds find it: else a search that finds nothing is none."""

from collections.abc import Callable
from typing import Any

import trio

from fencepost.broker.log.durability.flusher import LogFlusher
from fencepost.coordinator.group.service import GroupService
from fencepost.coordinator.txn.coordinator import TransactionCoordinator
from fencepost.coordinator.txn.doubts import Doubts
from fencepost.protocol.errors import ErrorCode


def answer_before_the_flush() -> None:
    """Whoever waits for the disk goes on at once; the flush comes later (durability, L2)."""

    async def wait(self: Any, ticket: Any, **_how: Any) -> None:
        self.schedule(ticket.log)
        await trio.lowlevel.checkpoint()

    LogFlusher.wait = wait  # type: ignore[method-assign]


def markers_overlooked() -> None:
    """An open transaction that was loaded stays open, though a partition has its marker (T13, decision 0080)."""
    Doubts.look = lambda self: self._shards.clear()  # type: ignore[method-assign]


def positions_survive_an_abort() -> None:
    """The group takes the positions of a transaction whichever way it ended (T8)."""
    complete = GroupService.complete_transaction

    def always(self: Any, partition: int, producer_id: int, commit: bool) -> None:
        complete(self, partition, producer_id, True)

    GroupService.complete_transaction = always  # type: ignore[method-assign]


def batches_unverified() -> None:
    """A transactional batch is taken without a question to the coordinator (T16)."""

    async def anything(self: Any, *words: Any, **more: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return dict.fromkeys(words[3], ErrorCode.NONE)

    TransactionCoordinator.ensure_partitions = anything  # type: ignore[method-assign]


def no_timeouts() -> None:
    """Nobody looks at the deadlines of transactions (T10)."""

    async def nothing(self: Any, transactional_id: str) -> None:
        await trio.lowlevel.checkpoint()

    TransactionCoordinator.expire = nothing  # type: ignore[method-assign]


SPOILT: dict[str, Callable[[], None]] = {
    spoil.__name__.replace("_", "-"): spoil
    for spoil in (
        answer_before_the_flush,
        markers_overlooked,
        positions_survive_an_abort,
        batches_unverified,
        no_timeouts,
    )
}
"""By the name that `python -m tests.simulation --spoilt` takes; each changes the broker of this process for good."""
