"""The rules of one transactional id: from its state and a command to its records, its reply and its markers."""

from dataclasses import replace
from typing import assert_never

from fencepost.coordinator.decision import Decision
from fencepost.coordinator.txn import end_txn, epochs
from fencepost.coordinator.txn.commands import (
    NEEDS_PRODUCER_ID,
    OK,
    AddPartitions,
    Answer,
    Command,
    Complete,
    EndTxn,
    Expire,
    InitProducerId,
    TimeOut,
    TxnDecision,
    VerifyPartitions,
    refuse,
)
from fencepost.coordinator.txn.expiry import NO_TIMEOUT_MS
from fencepost.coordinator.txn.state import (
    DEAD,
    MAY_FOLLOW,
    NO_EPOCH,
    CompleteAbort,
    CompleteCommit,
    Dead,
    Empty,
    Idle,
    Ongoing,
    PrepareAbort,
    PrepareCommit,
    Prepared,
    Producer,
    TxnRecord,
    TxnState,
    holder,
)
from fencepost.protocol.errors import ErrorCode


def decide(transactional_id: str, state: TxnState, command: Command, now_ms: int, server_version: int) -> TxnDecision:
    """Decide what `command` does to `transactional_id` in `state`.

    `server_version` is the finalized feature `transaction.version` (0 to 2); it governs the coordinator's own aborts
    (row T10). Pure: same arguments, same decision.
    """
    decision = _decide(transactional_id, state, command, now_ms, server_version)
    for record in decision.log:
        assert type(record.state) in MAY_FOLLOW[type(state)], f"{transactional_id}: {record.state} after {state}"
    return decision


def _decide(transactional_id: str, state: TxnState, command: Command, now_ms: int, server_version: int) -> TxnDecision:
    match command:
        case InitProducerId():
            return _init_producer_id(transactional_id, state, command, now_ms, server_version)
        case AddPartitions():
            return _add_partitions(transactional_id, state, command, now_ms)
        case VerifyPartitions():
            return _verify_partitions(state, command)
        case EndTxn():
            return end_txn.decide(transactional_id, state, command, now_ms)
        case TimeOut():
            return _time_out(transactional_id, state, command, now_ms, server_version)
        case Complete():
            return _complete(transactional_id, state, now_ms)
        case Expire():
            return _expire(transactional_id, state, command)
        case _:
            assert_never(command)


def _init_producer_id(
    transactional_id: str, state: TxnState, command: InitProducerId, now_ms: int, server_version: int
) -> TxnDecision:
    """Row T2. An open transaction is aborted first: CONCURRENT_TRANSACTIONS, and the shell repeats the command."""
    match state:
        case Dead():
            if command.fresh_producer_id is None:
                return Decision(NEEDS_PRODUCER_ID)
            return _grant(transactional_id, epochs.first(command.fresh_producer_id), command, now_ms)
        case Empty() | CompleteCommit() | CompleteAbort():
            return _init_idle(transactional_id, state, command, now_ms)
        case Ongoing():
            return _init_ongoing(transactional_id, state, command, now_ms, server_version)
        case PrepareCommit() | PrepareAbort():
            if _is_foreign(state, command.expected):
                return refuse(ErrorCode.PRODUCER_FENCED)
            return refuse(ErrorCode.CONCURRENT_TRANSACTIONS)
        case _:
            assert_never(state)


def _is_foreign(state: Prepared, expected: tuple[int, int] | None) -> bool:
    """Whether a request shows an identity that this id never had, or has not had for long (row T2)."""
    producer = state.producer
    if expected is None or expected[0] in (producer.producer_id, state.next_producer_id):
        return False
    if producer.is_retry(*expected):
        return False
    return not (expected[0] == producer.previous_producer_id and epochs.is_exhausted(expected[1]))


def _init_idle(transactional_id: str, state: Idle, command: InitProducerId, now_ms: int) -> TxnDecision:
    """Row P6 (KIP-360): bump for the holder of the current identity, repeat the answer for a retry, fence the rest."""
    producer, expected = state.producer, command.expected
    if expected is not None:
        if producer.is_retry(*expected):
            return _grant_again(transactional_id, producer, command, now_ms)
        if expected != (producer.producer_id, producer.epoch):
            return refuse(ErrorCode.PRODUCER_FENCED)
    same_client = expected is not None
    if not epochs.is_exhausted(producer.epoch):
        return _grant(transactional_id, epochs.bumped(producer, same_client=same_client), command, now_ms)
    if command.fresh_producer_id is None:
        return Decision(NEEDS_PRODUCER_ID)
    rotated = epochs.rotated(producer, command.fresh_producer_id, same_client=same_client)
    return _grant(transactional_id, rotated, command, now_ms)


def _init_ongoing(
    transactional_id: str, state: Ongoing, command: InitProducerId, now_ms: int, server_version: int
) -> TxnDecision:
    """Fence the holder of the transaction and abort it (row T2), in two points stricter than Kafka.

    Kafka aborts whatever epoch the request shows, and only then finds out that it is stale. So a zombie, or a late copy
    of an old request, ends the current holder's transaction. Here the zombie is fenced, and the late copy receives its
    old answer again; neither touches the transaction.
    """
    producer, expected = state.producer, command.expected
    if expected is not None:
        if producer.is_retry(*expected) and not state.is_kept and not command.keep_prepared:
            return Decision(Answer(ErrorCode.NONE, producer.producer_id, producer.epoch))
        if expected != holder(state):
            return refuse(ErrorCode.PRODUCER_FENCED)
    if command.keep_prepared:
        return _keep_ongoing(transactional_id, state, command, now_ms)
    return _abort_ongoing(
        transactional_id,
        state,
        now_ms,
        server_version,
        same_client=expected is not None,
        fresh_producer_id=command.fresh_producer_id,
        answer=ErrorCode.CONCURRENT_TRANSACTIONS,
    )


def _keep_ongoing(transactional_id: str, state: Ongoing, command: InitProducerId, now_ms: int) -> TxnDecision:
    """Row T23 (KIP-939): from now on only the caller may end the transaction; the former holder is fenced.

    The transaction stays open under the identity in its records. The answer names that identity as well: the caller
    compares it with the one that the outside coordinator stored for the prepared transaction.
    """
    successor = epochs.following(state, command.fresh_producer_id)
    if successor is None:
        return Decision(NEEDS_PRODUCER_ID)
    successor = successor[0], max(successor[1], 0)
    kept = replace(
        state,
        # A transaction that becomes part of a two-phase commit has no timeout from now on (row T22).
        timeout_ms=NO_TIMEOUT_MS if command.timeout_ms == NO_TIMEOUT_MS else state.timeout_ms,
        updated_ms=now_ms,
        next_producer_id=successor[0],
        next_producer_epoch=successor[1],
    )
    ongoing = (state.producer.producer_id, state.producer.epoch)
    return Decision(Answer(ErrorCode.NONE, *successor, ongoing=ongoing), log=(TxnRecord(transactional_id, kept),))


def _grant_again(transactional_id: str, producer: Producer, command: InitProducerId, now_ms: int) -> TxnDecision:
    """Repeat the identity for a retry; a fresh producer id if the abort before used the reserved epoch (TV1)."""
    if producer.epoch <= epochs.LAST_CLIENT_EPOCH:
        return _grant(transactional_id, producer, command, now_ms)
    if command.fresh_producer_id is None:
        return Decision(NEEDS_PRODUCER_ID)
    following = epochs.completed(producer, command.fresh_producer_id, NO_EPOCH)
    return _grant(transactional_id, following, command, now_ms)


def _grant(transactional_id: str, producer: Producer, command: InitProducerId, now_ms: int) -> TxnDecision:
    state = Empty(producer, command.timeout_ms, now_ms)
    answer = Answer(ErrorCode.NONE, producer.producer_id, producer.epoch)
    return Decision(answer, log=(TxnRecord(transactional_id, state),))


def _add_partitions(transactional_id: str, state: TxnState, command: AddPartitions, now_ms: int) -> TxnDecision:
    """Rows T3, T4, T16; the checks are in Kafka's order."""
    error = end_txn.identity_error(state, command.producer_id, command.epoch)
    if error:
        return refuse(error)
    match state:
        case Dead():
            raise AssertionError("no producer holds a dead id")
        case PrepareCommit() | PrepareAbort():
            return refuse(ErrorCode.CONCURRENT_TRANSACTIONS)
        case Ongoing():
            if state.is_kept:
                return refuse(ErrorCode.INVALID_TXN_STATE)  # row T23: it may only be ended
            if command.partitions <= state.partitions:
                return Decision(OK)
            grown = replace(
                state,
                partitions=state.partitions | command.partitions,
                updated_ms=now_ms,
                client_version=command.client_version,
            )
            return Decision(OK, log=(TxnRecord(transactional_id, grown),))
        case Empty() | CompleteCommit() | CompleteAbort():
            if not command.partitions:
                return Decision(OK)
            begun = Ongoing(
                state.producer, state.timeout_ms, command.partitions, now_ms, now_ms, command.client_version
            )
            return Decision(OK, log=(TxnRecord(transactional_id, begun),))
        case _:
            assert_never(state)


def _verify_partitions(state: TxnState, command: VerifyPartitions) -> TxnDecision:
    """Row T15: the same checks, and nothing is written."""
    error = end_txn.identity_error(state, command.producer_id, command.epoch)
    if error:
        return refuse(error)
    match state:
        case Dead():
            raise AssertionError("no producer holds a dead id")
        case PrepareCommit() | PrepareAbort():
            return refuse(ErrorCode.CONCURRENT_TRANSACTIONS)
        case Ongoing():
            if state.is_kept:
                return refuse(ErrorCode.INVALID_TXN_STATE)
            return Decision(Answer(missing=command.partitions - state.partitions))
        case Empty() | CompleteCommit() | CompleteAbort():
            return Decision(Answer(missing=command.partitions))
        case _:
            assert_never(state)


def _time_out(
    transactional_id: str, state: TxnState, command: TimeOut, now_ms: int, server_version: int
) -> TxnDecision:
    """Row T10. A transaction that has ended meanwhile, or has another epoch, is not touched."""
    if not isinstance(state, Ongoing) or (state.producer.producer_id, state.producer.epoch) != (
        command.producer_id,
        command.epoch,
    ):
        return Decision(OK)
    return _abort_ongoing(
        transactional_id,
        state,
        now_ms,
        server_version,
        # With TV2 the producer may continue with the next epoch (the aim of KIP-588); before, Kafka fences it for good
        # (row T11).
        same_client=server_version >= 2,
        fresh_producer_id=command.fresh_producer_id,
        answer=ErrorCode.NONE,
    )


def _abort_ongoing(
    transactional_id: str,
    state: Ongoing,
    now_ms: int,
    server_version: int,
    *,
    same_client: bool,
    fresh_producer_id: int | None,
    answer: ErrorCode,
) -> TxnDecision:
    """The coordinator's own abort: its markers have an epoch that no client holds, so they fence all late writes.

    One bump, under TV1 as under TV2 (KAFKA-19367); under TV2 also a fresh producer id if that was the last epoch
    (KAFKA-20090).
    """
    following: tuple[int, int] | None = None
    if state.is_kept or (server_version >= 2 and epochs.is_exhausted(state.producer.epoch)):
        following = epochs.following(state, fresh_producer_id)
        if following is None:
            return Decision(NEEDS_PRODUCER_ID)
    producer = epochs.ended(state, same_client=same_client)
    version = 2 if server_version >= 2 else 0
    return end_txn.prepare(
        transactional_id,
        end_txn.Ending(state.partitions, state.timeout_ms, state.started_ms, producer, following),
        commit=False,
        client_version=version,
        now_ms=now_ms,
        answer=Answer(answer),
    )


def _complete(transactional_id: str, state: TxnState, now_ms: int) -> TxnDecision:
    """Only the shell that wrote the markers sends this command, and only once."""
    assert isinstance(state, PrepareCommit | PrepareAbort), f"{transactional_id}: nothing to complete in {state}"
    return Decision(OK, log=(TxnRecord(transactional_id, completed(state, now_ms)),))


def completed(state: Prepared, now_ms: int) -> CompleteCommit | CompleteAbort:
    """The state of a decided transaction after all its markers are written."""
    producer = epochs.completed(state.producer, state.next_producer_id, state.next_producer_epoch)
    made = CompleteCommit if isinstance(state, PrepareCommit) else CompleteAbort
    return made(producer, state.timeout_ms, state.started_ms, now_ms, state.client_version)


def _expire(transactional_id: str, state: TxnState, command: Expire) -> TxnDecision:
    """Row T12."""
    if isinstance(state, Empty | CompleteCommit | CompleteAbort) and state.updated_ms == command.updated_ms:
        return Decision(OK, log=(TxnRecord(transactional_id, DEAD),))
    return Decision(OK)
