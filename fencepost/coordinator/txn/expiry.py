"""Which transactions have exceeded their timeout, and which transactional ids have expired."""

from collections.abc import Iterable, Iterator

from fencepost.coordinator.txn.commands import Expire, TimeOut
from fencepost.coordinator.txn.state import CompleteAbort, CompleteCommit, Empty, Ongoing, TxnState

NO_TIMEOUT_MS = 2**31 - 1
"""The timeout of a transaction that has none, because it takes part in a two-phase commit (row T22)."""


def due_in_ms(state: Ongoing, now_ms: int) -> int | None:
    """The ms until the timeout of the transaction: negative if it has passed, None if there is none (row T10).

    The start is wall-clock time, for it must outlive the process. A start in the future (the clock was set back) counts
    as now, so that no transaction lasts longer than its timeout from this call on.
    """
    if state.timeout_ms == NO_TIMEOUT_MS:
        return None
    return min(state.started_ms, now_ms) + state.timeout_ms - now_ms


def time_out(state: Ongoing, fresh_producer_id: int | None) -> TimeOut:
    """The command that aborts exactly this transaction, if it is still open when the command is decided."""
    return TimeOut(state.producer.producer_id, state.producer.epoch, fresh_producer_id)


def unused_ids(states: Iterable[tuple[str, TxnState]], now_ms: int, expiration_ms: int) -> Iterator[tuple[str, Expire]]:
    """The ids without an open transaction that were last used `expiration_ms` ago or earlier (row T12)."""
    for transactional_id, state in states:
        if isinstance(state, Empty | CompleteCommit | CompleteAbort) and state.updated_ms + expiration_ms <= now_ms:
            yield transactional_id, Expire(state.updated_ms)
