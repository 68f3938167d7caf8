"""One transactional id in each of its states, and the machine's decisions taken apart."""

from dataclasses import replace

from fencepost.coordinator.txn import machine
from fencepost.coordinator.txn.commands import Answer, Command, TxnDecision
from fencepost.coordinator.txn.state import (
    DEAD,
    CompleteAbort,
    CompleteCommit,
    Dead,
    Empty,
    Ongoing,
    PrepareAbort,
    PrepareCommit,
    Producer,
    TxnState,
)
from fencepost.protocol.errors import ErrorCode
from tests.unit.txn.kit import P0, TX

NOW = 5_000
PID, EPOCH = 7, 4
FRESH = 99
HELD = Producer(PID, EPOCH, PID, EPOCH - 1)
ON_P0 = frozenset({P0})
EMPTY = Empty(HELD, 60_000, 1_000)
ONGOING = Ongoing(HELD, 60_000, ON_P0, 2_000, 2_500, 2)
COMMITTING = PrepareCommit(HELD, 60_000, ON_P0, 2_000, 2_600, 2)
ABORTING = PrepareAbort(HELD, 60_000, ON_P0, 2_000, 2_600, 2)
COMMITTED = CompleteCommit(HELD, 60_000, 2_000, 2_700, 2)
ABORTED = CompleteAbort(HELD, 60_000, 2_000, 2_700, 2)
IDLE = (EMPTY, COMMITTED, ABORTED)
ALL = (DEAD, *IDLE, ONGOING, COMMITTING, ABORTING)


def name_of(value: object) -> str:
    return getattr(value, "name", None) or str(value)


def decide(state: TxnState, command: Command, server_version: int = 2) -> TxnDecision:
    return machine.decide(TX, state, command, NOW, server_version)


def after(decision: TxnDecision) -> TxnState:
    (record,) = decision.log
    assert record.transactional_id == TX
    return record.state


def refused(decision: TxnDecision) -> ErrorCode:
    """The error of a decision that changes nothing."""
    assert decision.log == ()
    assert isinstance(decision.reply, Answer)
    return decision.reply.error


def granted(decision: TxnDecision) -> tuple[int, int]:
    """The identity that a successful answer carries."""
    assert isinstance(decision.reply, Answer)
    assert decision.reply.error is ErrorCode.NONE
    return decision.reply.producer_id, decision.reply.epoch


def with_producer(state: TxnState, producer: Producer) -> TxnState:
    assert not isinstance(state, Dead)
    return replace(state, producer=producer)
