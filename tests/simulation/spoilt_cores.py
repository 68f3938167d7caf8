"""Cores with one defect each, to see that the worlds of several cores find it (`cores_world.py`)."""

from collections.abc import Callable
from typing import Any

import trio

from fencepost.broker.cores.followed_metadata import Settled
from fencepost.broker.cores.placed import Placed
from fencepost.broker.log.producer_state import ProducerStates
from fencepost.coordinator.txn import completion
from fencepost.coordinator.txn.completion import Completion
from fencepost.coordinator.txn.deciding import Decisions
from fencepost.protocol.errors import ErrorCode
from tests.simulation.spoilt import answer_before_the_flush, batches_unverified
from tests.simulation.spoilt_moves import SPOILT_MOVES


def markers_before_the_decision() -> None:
    """Markers leave for other cores before the Prepare record is durable (KIP-98)."""
    start = Completion._start

    def at_once(self: Completion, owed: Any, ticket: Any) -> None:
        start(self, owed, Settled(ticket.end_offset))  # type: ignore[arg-type]

    Completion._start = at_once  # type: ignore[method-assign]


def epoch_stays() -> None:
    """A coordinator that starts again has the epoch that it had."""
    Placed.coordinator_epoch = property(lambda self: 1)  # type: ignore[assignment]


def old_coordinators_write() -> None:
    """A partition takes markers of an older coordinator epoch than it has seen (T14)."""
    check = ProducerStates.check_marker

    def without_fence(self: ProducerStates, producer_id: int, epoch: int, coordinator: int, version: int) -> Any:
        refusal = check(self, producer_id, epoch, coordinator, version)
        fenced = refusal is not None and refusal.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
        return None if fenced else refusal

    ProducerStates.check_marker = without_fence  # type: ignore[method-assign]


def any_epoch_ends() -> None:
    """A marker of any epoch ends the producer's transaction (T9, KIP-890)."""
    ProducerStates.check_marker = lambda *words: None  # type: ignore[method-assign]


def lost_markers_forgotten() -> None:
    """A marker that was not written is not sent again (T8)."""
    completion.lacking = lambda partitions, answers: frozenset()


def answer_before_the_markers() -> None:
    """EndTxn is answered when it is decided (decision 0005)."""

    async def decided(self: Completion, *words: Any) -> bool:
        await trio.lowlevel.checkpoint()
        return False

    Completion.wait = decided  # type: ignore[method-assign]
    Decisions._lacks_markers = lambda *words: False  # type: ignore[method-assign]


SPOILT: dict[str, Callable[[], None]] = SPOILT_MOVES | {
    spoil.__name__.replace("_", "-"): spoil
    for spoil in (
        markers_before_the_decision,
        epoch_stays,
        old_coordinators_write,
        any_epoch_ends,
        lost_markers_forgotten,
        answer_before_the_markers,
        answer_before_the_flush,
        batches_unverified,
    )
}
"""By the name that `python -m tests.simulation.cores_world --spoilt` takes."""
