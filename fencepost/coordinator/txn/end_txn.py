"""The rules of EndTxn: which identity may commit or abort, by the table of each protocol version (row T7)."""

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from fencepost.coordinator.decision import Decision
from fencepost.coordinator.txn import epochs
from fencepost.coordinator.txn.commands import NEEDS_PRODUCER_ID, Answer, EndTxn, TxnDecision, refuse
from fencepost.coordinator.txn.state import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    CompleteAbort,
    CompleteCommit,
    Dead,
    Empty,
    Idle,
    Known,
    Ongoing,
    PrepareAbort,
    PrepareCommit,
    Prepared,
    Producer,
    TxnRecord,
    TxnState,
    holder,
)
from fencepost.protocol.errors import NO_ERROR, ErrorCode
from fencepost.protocol.topics import TopicPartition

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    from fencepost.coordinator.values import dataclass


@dataclass(frozen=True, slots=True)
class Ending:
    """A transaction to be decided, with the identity of its markers."""

    partitions: frozenset[TopicPartition]
    timeout_ms: int
    started_ms: int
    producer: Producer
    following: tuple[int, int] | None
    """The identity after the markers; None if theirs stays. NO_EPOCH in it stands for 0, as in Kafka."""


def identity_error(state: TxnState, producer_id: int, epoch: int) -> ErrorCode:
    """Why an identity may not act for the id: another producer id, or not the newest epoch; NONE if it may."""
    if isinstance(state, Dead):
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    held = holder(state)
    if producer_id not in (held[0], state.producer.producer_id):
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return NO_ERROR if (producer_id, epoch) == held else ErrorCode.PRODUCER_FENCED


def decide(transactional_id: str, state: TxnState, command: EndTxn, now_ms: int) -> TxnDecision:
    """Decide one EndTxn. The request's version selects the table (row T16): EndTxn v5 and later mean TV2.

    On CONCURRENT_TRANSACTIONS the shell waits for the markers under way and decides again. A client receives it only
    if that takes too long. Kafka also answers it to a retry of the EndTxn under way; see `_same_again`.
    """
    if isinstance(state, Dead):
        return refuse(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if command.client_version >= 2:
        return _decide_tv2(transactional_id, state, command, now_ms)
    return _decide_tv1(transactional_id, state, command, now_ms)


def _decide_tv1(transactional_id: str, state: Known, command: EndTxn, now_ms: int) -> TxnDecision:
    """The epoch must be the current one, but it does not identify the transaction: a late EndTxn ends the next one
    (KAFKA-17754). That is why TV2 exists."""
    if isinstance(state, PrepareCommit | PrepareAbort):
        producer = epochs.completed(state.producer, state.next_producer_id, state.next_producer_epoch)
        error = identity_error(replace(state, producer=producer), command.producer_id, command.epoch)
    else:
        producer = state.producer
        error = identity_error(state, command.producer_id, command.epoch)
    if error:
        return refuse(error)
    match state:
        case Ongoing():
            return _end_tv1(transactional_id, state, command, now_ms)
        case PrepareCommit() | PrepareAbort():
            if command.commit != isinstance(state, PrepareCommit):
                return refuse(ErrorCode.INVALID_TXN_STATE)
            return _same_again(state)
        case CompleteCommit() | CompleteAbort():
            if command.commit != isinstance(state, CompleteCommit):
                return refuse(ErrorCode.INVALID_TXN_STATE)
            return Decision(Answer(NO_ERROR, producer.producer_id, producer.epoch))
        case Empty():
            return refuse(ErrorCode.INVALID_TXN_STATE)
        case _:
            assert_never(state)


def _end_tv1(transactional_id: str, state: Ongoing, command: EndTxn, now_ms: int) -> TxnDecision:
    """Decide; the identity stays. A kept transaction's markers are still one epoch above its records: the producer that
    wrote these must not write again (row T23)."""
    held = holder(state)
    producer = epochs.ended(state, same_client=False) if state.is_kept else state.producer
    following = held if state.is_kept else None
    return prepare(
        transactional_id,
        Ending(state.partitions, state.timeout_ms, state.started_ms, producer, following),
        commit=command.commit,
        client_version=command.client_version,
        now_ms=now_ms,
        answer=Answer(NO_ERROR, *held, after_markers=True),
    )


def _decide_tv2(transactional_id: str, state: Known, command: EndTxn, now_ms: int) -> TxnDecision:
    """Every EndTxn bumps the epoch, so the epoch of a request identifies its transaction."""
    producer, shown = state.producer, (command.producer_id, command.epoch)
    match state:
        case PrepareCommit() | PrepareAbort():
            ended_by = epochs.ended_by(state)
            if command.producer_id not in (producer.producer_id, state.next_producer_id, ended_by[0]):
                return refuse(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
            if shown == ended_by and command.commit == isinstance(state, PrepareCommit):
                return _same_again(state)
            # Before any other check of the epoch (KAFKA-18464): only after the markers is its meaning clear.
            return refuse(ErrorCode.CONCURRENT_TRANSACTIONS)
        case Ongoing():
            error = identity_error(state, *shown)
            return refuse(error) if error else _end_ongoing_tv2(transactional_id, state, command, now_ms)
        case Empty() | CompleteCommit() | CompleteAbort():
            over_rotation = epochs.is_retry_over_rotation(producer, *shown)
            if producer.producer_id != command.producer_id and not over_rotation:
                return refuse(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
            is_retry = over_rotation or command.epoch == producer.epoch - 1
            return _end_idle_tv2(transactional_id, state, command, is_retry, now_ms)
        case _:
            assert_never(state)


def _same_again(state: Prepared) -> TxnDecision:
    """Answer a retry of the EndTxn under way: it gets the same answer, at the same time.

    To decide it again after the markers would be wrong under TV1: the next transaction may be open by then under the
    same epoch, and the retry would end that one.
    """
    producer = epochs.completed(state.producer, state.next_producer_id, state.next_producer_epoch)
    return Decision(Answer(NO_ERROR, producer.producer_id, producer.epoch, after_markers=True))


def _end_idle_tv2(transactional_id: str, state: Idle, command: EndTxn, is_retry: bool, now_ms: int) -> TxnDecision:
    """The TV2 table of row T7 for ids without an open transaction.

    | state          | abort, retry      | abort, current | commit, retry   | commit, current   |
    |----------------|-------------------|----------------|-----------------|-------------------|
    | Empty          | PRODUCER_FENCED   | bump           | PRODUCER_FENCED | INVALID_TXN_STATE |
    | CompleteAbort  | NONE              | bump           | PRODUCER_FENCED | INVALID_TXN_STATE |
    | CompleteCommit | INVALID_TXN_STATE | bump           | NONE            | INVALID_TXN_STATE |

    NONE answers the stored identity. A commit after the coordinator's own abort is PRODUCER_FENCED, as in KAFKA-20785:
    clients recover from that, but not from INVALID_TXN_STATE.
    """
    producer = state.producer
    if not is_retry:
        if command.epoch != producer.epoch:
            return refuse(ErrorCode.PRODUCER_FENCED)
        if command.commit:
            return refuse(ErrorCode.INVALID_TXN_STATE)
        return _end_ongoing_tv2(transactional_id, _nothing(state, now_ms), command, now_ms)
    stored = Answer(NO_ERROR, producer.producer_id, producer.epoch)
    match state:
        case Empty():
            return refuse(ErrorCode.PRODUCER_FENCED)
        case CompleteAbort():
            if command.commit:
                return refuse(ErrorCode.PRODUCER_FENCED)
            if producer.epoch == epochs.MAX_EPOCH:  # of a timeout's marker: no client may receive it (row P12)
                return _end_ongoing_tv2(transactional_id, _nothing(state, now_ms), command, now_ms)
            return Decision(stored)
        case CompleteCommit():
            return Decision(stored) if command.commit else refuse(ErrorCode.INVALID_TXN_STATE)
        case _:
            assert_never(state)


def _nothing(state: Idle, now_ms: int) -> Ongoing:
    """A transaction without partitions: to end it bumps the epoch, or changes the producer id."""
    return Ongoing(state.producer, state.timeout_ms, frozenset(), now_ms, now_ms)


def _end_ongoing_tv2(transactional_id: str, state: Ongoing, command: EndTxn, now_ms: int) -> TxnDecision:
    """Decide and bump the epoch. The client continues with it, or with a new producer id if it was the last epoch."""
    following: tuple[int, int] | None = None
    if state.is_kept or epochs.is_exhausted(state.producer.epoch):
        following = epochs.following(state, command.fresh_producer_id)
        if following is None:
            return Decision(NEEDS_PRODUCER_ID)
    producer = epochs.ended(state, same_client=True)
    answered = following or (producer.producer_id, producer.epoch)
    return prepare(
        transactional_id,
        Ending(state.partitions, state.timeout_ms, state.started_ms, producer, following),
        commit=command.commit,
        client_version=command.client_version,
        now_ms=now_ms,
        answer=Answer(NO_ERROR, answered[0], max(answered[1], 0), after_markers=True),
    )


def prepare(
    transactional_id: str, ending: Ending, *, commit: bool, client_version: int, now_ms: int, answer: Answer
) -> TxnDecision:
    """The point of no return: one Prepare record. In that state the transaction owes a marker to every partition."""
    made = PrepareCommit if commit else PrepareAbort
    state = made(
        ending.producer,
        ending.timeout_ms,
        ending.partitions,
        ending.started_ms,
        now_ms,
        client_version,
        *(ending.following or (NO_PRODUCER_ID, NO_EPOCH)),
    )
    return Decision(answer, log=(TxnRecord(transactional_id, state),))
