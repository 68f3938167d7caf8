"""The rules of EndTxn: who may commit or abort, by the table of each protocol version (row T7)."""

from dataclasses import dataclass
from typing import assert_never

from fencepost.coordinator.decision import Decision
from fencepost.coordinator.txn import epochs, markers
from fencepost.coordinator.txn.commands import NEEDS_PRODUCER_ID, Answer, EndTxn, TxnDecision, refuse
from fencepost.coordinator.txn.state import (
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
)
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition


@dataclass(frozen=True, slots=True)
class Ending:
    """A transaction about to be decided, with the identity that its markers will carry."""

    partitions: frozenset[TopicPartition]
    timeout_ms: int
    started_ms: int
    producer: Producer
    fresh_producer_id: int | None
    """Takes over at epoch 0 after the markers; None while the producer id has epochs left."""


def decide(transactional_id: str, state: TxnState, command: EndTxn, now_ms: int) -> TxnDecision:
    """Answer one EndTxn. Which table holds is the request's choice (row T16): EndTxn v5 and later mean TV2.

    CONCURRENT_TRANSACTIONS asks the shell to wait for the markers under way and to decide again; a client hears it only
    when that takes too long. Kafka answers it to a retry of the EndTxn under way as well; see `_same_again`.
    """
    if isinstance(state, Dead):
        return refuse(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if command.client_version >= 2:
        return _decide_tv2(transactional_id, state, command, now_ms)
    return _decide_tv1(transactional_id, state, command, now_ms)


def _decide_tv1(transactional_id: str, state: Known, command: EndTxn, now_ms: int) -> TxnDecision:
    """The epoch must be the current one, and says nothing about which transaction is meant: a late EndTxn hits the next
    one (KAFKA-17754). That is why TV2 exists."""
    producer = state.producer
    if producer.producer_id != command.producer_id:
        return refuse(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if producer.epoch != command.epoch:
        return refuse(ErrorCode.PRODUCER_FENCED)
    match state:
        case Ongoing():
            ending = Ending(state.partitions, state.timeout_ms, state.started_ms, producer, None)
            return prepare(
                transactional_id,
                ending,
                commit=command.commit,
                client_version=command.client_version,
                now_ms=now_ms,
                answer=Answer(ErrorCode.NONE, producer.producer_id, producer.epoch),
            )
        case PrepareCommit() | PrepareAbort():
            if command.commit != isinstance(state, PrepareCommit):
                return refuse(ErrorCode.INVALID_TXN_STATE)
            return _same_again(state)
        case CompleteCommit() | CompleteAbort():
            if command.commit != isinstance(state, CompleteCommit):
                return refuse(ErrorCode.INVALID_TXN_STATE)
            return Decision(Answer(ErrorCode.NONE, producer.producer_id, producer.epoch))
        case Empty():
            return refuse(ErrorCode.INVALID_TXN_STATE)
        case _:
            assert_never(state)


def _decide_tv2(transactional_id: str, state: Known, command: EndTxn, now_ms: int) -> TxnDecision:
    """Every EndTxn bumps the epoch, so the epoch of a request tells which transaction it means."""
    producer = state.producer
    over_rotation = epochs.is_retry_over_rotation(producer, command.producer_id, command.epoch)
    if producer.producer_id != command.producer_id and not over_rotation:
        return refuse(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    match state:
        case PrepareCommit() | PrepareAbort():
            if command.epoch == producer.epoch - 1 and command.commit == isinstance(state, PrepareCommit):
                return _same_again(state)
            # Before any other test of the epoch (KAFKA-18464): what it means is clear only after the markers.
            return refuse(ErrorCode.CONCURRENT_TRANSACTIONS)
        case Ongoing():
            if command.epoch != producer.epoch:
                return refuse(ErrorCode.PRODUCER_FENCED)
            return _end_tv2(
                transactional_id,
                command,
                producer,
                Ending(state.partitions, state.timeout_ms, state.started_ms, producer, None),
                now_ms,
            )
        case Empty() | CompleteCommit() | CompleteAbort():
            is_retry = over_rotation or command.epoch == producer.epoch - 1
            return _end_idle_tv2(transactional_id, state, command, is_retry, now_ms)
        case _:
            assert_never(state)


def _same_again(state: Prepared) -> TxnDecision:
    """A retry of the very EndTxn that is being carried out: it has the same answer, and at the same time.

    To decide it again after the markers would be wrong under TV1: by then the next transaction may be open under the
    same epoch, and the retry would end that one.
    """
    producer = epochs.completed(state.producer, state.next_producer_id, state.next_producer_epoch)
    return Decision(Answer(ErrorCode.NONE, producer.producer_id, producer.epoch, after_markers=True))


def _end_idle_tv2(transactional_id: str, state: Idle, command: EndTxn, is_retry: bool, now_ms: int) -> TxnDecision:
    """The TV2 table of row T7 for ids without an open transaction.

    | state          | abort, retry      | abort, current | commit, retry   | commit, current   |
    |----------------|-------------------|----------------|-----------------|-------------------|
    | Empty          | PRODUCER_FENCED   | bump           | PRODUCER_FENCED | INVALID_TXN_STATE |
    | CompleteAbort  | NONE              | bump           | PRODUCER_FENCED | INVALID_TXN_STATE |
    | CompleteCommit | INVALID_TXN_STATE | bump           | NONE            | INVALID_TXN_STATE |

    NONE answers the stored identity. A commit that comes after the coordinator's own abort is PRODUCER_FENCED, as in
    KAFKA-20785: clients recover from it, and from INVALID_TXN_STATE they do not.
    """
    producer = state.producer
    if not is_retry:
        if command.epoch != producer.epoch:
            return refuse(ErrorCode.PRODUCER_FENCED)
        if command.commit:
            return refuse(ErrorCode.INVALID_TXN_STATE)
        ending = Ending(frozenset(), state.timeout_ms, now_ms, producer, None)
        return _end_tv2(transactional_id, command, producer, ending, now_ms)
    stored = Answer(ErrorCode.NONE, producer.producer_id, producer.epoch)
    match state:
        case Empty():
            return refuse(ErrorCode.PRODUCER_FENCED)
        case CompleteAbort():
            return refuse(ErrorCode.PRODUCER_FENCED) if command.commit else Decision(stored)
        case CompleteCommit():
            return Decision(stored) if command.commit else refuse(ErrorCode.INVALID_TXN_STATE)
        case _:
            assert_never(state)


def _end_tv2(transactional_id: str, command: EndTxn, producer: Producer, ending: Ending, now_ms: int) -> TxnDecision:
    """Decide, with the epoch bumped; the client goes on with it, or with a fresh producer id where it was the last."""
    bumped = epochs.bumped(producer, same_client=True)
    fresh: int | None = None
    if epochs.is_exhausted(producer.epoch):
        if command.fresh_producer_id is None:
            return Decision(NEEDS_PRODUCER_ID)
        fresh = command.fresh_producer_id
    identity = (producer.producer_id, bumped.epoch) if fresh is None else (fresh, 0)
    return prepare(
        transactional_id,
        Ending(ending.partitions, ending.timeout_ms, ending.started_ms, bumped, fresh),
        commit=command.commit,
        client_version=command.client_version,
        now_ms=now_ms,
        answer=Answer(ErrorCode.NONE, *identity),
    )


def prepare(
    transactional_id: str, ending: Ending, *, commit: bool, client_version: int, now_ms: int, answer: Answer
) -> TxnDecision:
    """The point of no return: one Prepare record, and the duty to carry it to every partition."""
    made = PrepareCommit if commit else PrepareAbort
    state = made(
        ending.producer,
        ending.timeout_ms,
        ending.partitions,
        ending.started_ms,
        now_ms,
        client_version,
        NO_PRODUCER_ID if ending.fresh_producer_id is None else ending.fresh_producer_id,
    )
    return Decision(answer, log=(TxnRecord(transactional_id, state),), then=(markers.owed(transactional_id, state),))
