"""Which transactions have lasted too long, and which ids were not used for so long that they are forgotten."""

from collections.abc import Iterable, Iterator

from fencepost.coordinator.txn.commands import Expire, TimeOut
from fencepost.coordinator.txn.state import CompleteAbort, CompleteCommit, Empty, Ongoing, TxnState

NO_TIMEOUT_MS = 2**31 - 1
"""As a transaction's timeout: none, for it takes part in a two-phase commit (row T22)."""


def due_in_ms(state: Ongoing, now_ms: int) -> int | None:
    """How long the transaction may still last: negative when it is late, None when it has no timeout (row T10).

    The start is wall-clock time, for it must outlive the process. A start in the future (the clock was set back) counts
    as now, so that no transaction gets longer than its timeout once this has been asked.
    """
    if state.timeout_ms == NO_TIMEOUT_MS:
        return None
    return min(state.started_ms, now_ms) + state.timeout_ms - now_ms


def time_out(state: Ongoing, fresh_producer_id: int | None) -> TimeOut:
    """The command that ends exactly this transaction, should it still be there when the command arrives."""
    return TimeOut(state.producer.producer_id, state.producer.epoch, fresh_producer_id)


def forgettable(
    states: Iterable[tuple[str, TxnState]], now_ms: int, expiration_ms: int
) -> Iterator[tuple[str, Expire]]:
    """The ids that nothing is open for and that were last used `expiration_ms` ago or longer (row T12)."""
    for transactional_id, state in states:
        if isinstance(state, Empty | CompleteCommit | CompleteAbort) and state.updated_ms + expiration_ms <= now_ms:
            yield transactional_id, Expire(state.updated_ms)
