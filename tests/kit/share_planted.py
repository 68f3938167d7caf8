"""`fencepost serve` that is wrong in one way, for the judge of share groups to find.

python -m tests.kit.share_planted FAULT PYTHON -m fencepost serve ...
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import trio

from fencepost.__main__ import main
from fencepost.broker.share import acknowledging, partitions
from fencepost.broker.share.change import Change
from fencepost.broker.share.in_flight import AtCommit, InFlightState
from fencepost.broker.share.led import LedPartition
from fencepost.coordinator.share.service import ShareStates
from fencepost.coordinator.share.values import DeliveryState, Outcome, ShareKey, StateUpdate, StoredState


def answer_before_stored() -> None:
    """What is acknowledged is answered at once and stored half a second later."""
    write = ShareStates.write

    async def early(self: ShareStates, updates: Sequence[tuple[ShareKey, StateUpdate]]) -> list[Outcome]:
        async def late() -> None:
            await trio.sleep(0.5)
            await write(self, updates)

        trio.lowlevel.spawn_system_task(late)
        return [Outcome()] * len(updates)

    ShareStates.write = early  # type: ignore[method-assign]


def _reading(change: Callable[[StoredState], StoredState]) -> None:
    read = ShareStates.read

    async def changed(self: ShareStates, key: ShareKey, leader_epoch: int) -> StoredState:
        return change(await read(self, key, leader_epoch))

    ShareStates.read = changed  # type: ignore[method-assign]


def forget_the_start() -> None:
    """A leader begins at offset 0 and knows nothing."""
    _reading(lambda state: state._replace(start_offset=min(state.start_offset, 0), batches=()))


def forget_counts() -> None:
    """A leader begins with records that were never delivered."""
    _reading(lambda state: state._replace(batches=tuple(one._replace(delivery_count=0) for one in state.batches)))


def skip_released() -> None:
    """A leader takes what was released for archived."""
    _reading(
        lambda state: state._replace(
            batches=tuple(one._replace(delivery_state=DeliveryState.ARCHIVED) for one in state.batches)
        )
    )


def deliver_accepted() -> None:
    """An accepted record is available again."""
    states: Any = list(acknowledging._STATES)
    states[1] = DeliveryState.AVAILABLE
    acknowledging._STATES = tuple(states)


def hold_no_locks() -> None:
    """Locks end at once."""
    limits_of = partitions.limits_of
    partitions.limits_of = lambda *what: limits_of(*what)._replace(lock_ms=1)  # type: ignore[assignment]


def answer_behind_the_start() -> None:
    """Nothing is stored of what lies behind the start, and records are delivered though that cannot be stored."""
    Change.skipped = lambda *range_of: None  # type: ignore[method-assign,assignment]
    LedPartition.can_deliver = lambda self: self.active and self.core.can_acquire()  # type: ignore[method-assign]


def forget_pending() -> None:
    """A leader does not know what transactions acknowledged that have not ended."""
    _reading(
        lambda state: state._replace(
            pending=(),
            batches=tuple(one for one in state.batches if one.delivery_state is not DeliveryState.TX_PENDING),
        )
    )


def _ending(commit: bool) -> None:
    appended = ShareStates.marker_appended
    complete = ShareStates.complete_transaction
    ShareStates.marker_appended = lambda self, partition, producer_id, _: appended(  # type: ignore[method-assign]
        self, partition, producer_id, commit
    )
    ShareStates.complete_transaction = lambda self, partition, producer_id, _: complete(  # type: ignore[method-assign]
        self, partition, producer_id, commit
    )


def acknowledge_aborted() -> None:
    """What a transaction acknowledged is done even if it aborts."""
    _ending(True)


def release_committed() -> None:
    """What a transaction acknowledged is available again though it committed."""
    _ending(False)


def hold_no_pending() -> None:
    """What a transaction acknowledged is available at once."""
    pend = InFlightState.pend

    def available(self: InFlightState, at_commit: AtCommit) -> None:
        pend(self, at_commit)
        self.state = DeliveryState.AVAILABLE

    InFlightState.pend = available  # type: ignore[method-assign]


def forget_times() -> None:
    """What is held back comes at once."""
    acknowledging.held_until = lambda time_ms: 1


PLANTED: dict[str, tuple[Callable[[], None], str]] = {
    one.__name__: (one, found)
    for one, found in (
        (answer_before_stored, "delivered again"),
        (forget_the_start, "delivered again"),
        (deliver_accepted, "delivered again"),
        (skip_released, "lost"),
        (forget_counts, "the delivery count fell"),
        (hold_no_locks, "with two members"),
        (forget_times, "before its time"),
    )
}
"""Each fault, and what the judge calls it."""

PLANTED_IN_WORLDS: dict[str, tuple[Callable[[], None], str]] = {
    one.__name__: (one, found)
    for one, found in (
        (answer_behind_the_start, "delivered again"),
        (forget_pending, "delivered while pending"),
        (hold_no_pending, "delivered while pending"),
        (acknowledge_aborted, "lost"),
        (release_committed, "committed twice"),
    )
}
"""Those that take transactions, or a share coordinator that refuses, to be found."""

if __name__ == "__main__":
    PLANTED[sys.argv[1]][0]()
    sys.argv[1:] = sys.argv[sys.argv.index("fencepost") + 1 :]
    main()
