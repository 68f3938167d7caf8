"""The values of a transactional producer's state machine: its state, its requests and its events."""

import enum
from dataclasses import dataclass
from typing import Final, TypeAlias

from fencepost.protocol.errors import ErrorCode

Producer: TypeAlias = tuple[int, int]
"""(producer id, epoch)."""
NO_PRODUCER: Final[Producer] = (-1, -1)


class Phase(enum.Enum):
    """The phase of a transactional producer; `core.txn_machine` has the table."""

    NEW = "new"
    STARTING = "starting"
    READY = "ready"
    OPEN = "open"
    COMMITTING = "committing"
    ABORTING = "aborting"
    STALE = "stale"
    UNKNOWN = "unknown"
    PREPARED = "prepared"
    COMPLETING = "completing"
    BROKEN = "broken"


class Outcome(enum.Enum):
    """How a step of the machine ended."""

    READY = "a transaction may begin"
    COMMITTED = "committed"
    ABORTED = "aborted"
    EXPIRED = "aborted by the coordinator, or never known to it"
    REJECTED = "the commit was refused: abort"
    UNKNOWN = "a commit was sent and no response came"
    FENCED = "a newer producer has the transactional id"
    FORBIDDEN = "a permission is missing"
    FATAL = "this client and this broker cannot work together"
    FAILED = "no broker was reached; the same request may be sent again"


@dataclass(frozen=True, slots=True)
class TxnState:
    """The machine's whole state; `core.txn_machine` explains the flags."""

    phase: Phase = Phase.NEW
    producer: Producer = NO_PRODUCER
    tv2: bool = False
    bumps: bool = True
    begun: bool = False
    unanswered: bool = False
    commit_unanswered: bool = False
    aim: Outcome = Outcome.READY
    commit: bool = False


# Requests to the coordinator


@dataclass(frozen=True, slots=True)
class AskInit:
    """InitProducerId: a new epoch if `producer` is still the owner; NO_PRODUCER sends no identity."""

    producer: Producer


@dataclass(frozen=True, slots=True)
class AskEnd:
    """EndTxn, v5 or later for `tv2`, v4 or earlier otherwise."""

    producer: Producer
    commit: bool
    tv2: bool


@dataclass(frozen=True, slots=True)
class StepResult:
    """The outcome, without another request, and the error code that caused it if there was one."""

    outcome: Outcome
    code: ErrorCode | None = None


NextStep: TypeAlias = AskInit | AskEnd | StepResult | None


# Events


class Event(enum.Enum):
    """A call of the program, or the fate of a request."""

    OPEN = "initialise for the first time"
    WROTE = "a request that begins the transaction at the coordinator is sent now"
    UNANSWERED = "such a request got no response: it may still arrive"
    COMMIT = "everything is acknowledged: commit"
    ABORT = "abort the transaction"
    PREPARE = "everything is acknowledged: wait for the outside decision"
    RECOVER = "make sure that a transaction can begin"
    GIVE_UP = "the deadline is over, or the caller was cancelled"


@dataclass(frozen=True, slots=True)
class Begin:
    """A transaction begins, in the protocol version that the cluster has now."""

    tv2: bool
    bumps: bool


@dataclass(frozen=True, slots=True)
class TakenOver:
    """A two-phase producer has opened: `prepared` if a predecessor's transaction waits for its outcome."""

    producer: Producer
    prepared: bool


@dataclass(frozen=True, slots=True)
class Complete:
    """The decision for the prepared transaction."""

    commit: bool


@dataclass(frozen=True, slots=True)
class Response:
    """The coordinator's response; `producer` is the identity that it returned, NO_PRODUCER for none."""

    code: ErrorCode = ErrorCode.NONE
    producer: Producer = NO_PRODUCER


@dataclass(frozen=True, slots=True)
class NoResponse:
    """The connection ended first; `sent` if the request may have reached the coordinator."""

    sent: bool


AnyEvent: TypeAlias = Event | Begin | TakenOver | Complete | Response | NoResponse
