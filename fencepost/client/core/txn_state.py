"""What the machine of a transactional producer speaks of: where it stands, what it asks, what it is told."""

import enum
from dataclasses import dataclass
from typing import Final, TypeAlias

from fencepost.protocol.errors import ErrorCode

Producer: TypeAlias = tuple[int, int]
"""(producer id, epoch)."""
NO_PRODUCER: Final[Producer] = (-1, -1)


class Phase(enum.Enum):
    """Where a transactional producer stands; the table is where the machine is."""

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
    """How a step that was asked of the machine ended."""

    READY = "a transaction may begin"
    COMMITTED = "committed"
    ABORTED = "aborted"
    EXPIRED = "aborted by the coordinator, or never known to it"
    REFUSED = "the commit was refused: abort"
    UNKNOWN = "a commit was sent and no response came"
    FENCED = "a newer producer has the transactional id"
    FORBIDDEN = "a permission is missing"
    FATAL = "this client and this broker cannot work together"
    FAILED = "no broker was reached; the same request may be sent again"


@dataclass(frozen=True, slots=True)
class TxnState:
    """All that the machine remembers; the flags are explained where the machine is."""

    phase: Phase = Phase.NEW
    producer: Producer = NO_PRODUCER
    tv2: bool = False
    bumps: bool = True
    begun: bool = False
    doubt: bool = False
    asked: bool = False
    aim: Outcome = Outcome.READY
    commit: bool = False


# What is asked of the coordinator


@dataclass(frozen=True, slots=True)
class AskInit:
    """InitProducerId: a new epoch if `producer` is still the owner; NO_PRODUCER asks without showing one."""

    producer: Producer


@dataclass(frozen=True, slots=True)
class AskEnd:
    """EndTxn, v5 or later for `tv2`, v4 or earlier otherwise."""

    producer: Producer
    commit: bool
    tv2: bool


@dataclass(frozen=True, slots=True)
class Told:
    """Nothing more to ask: this is how it ended, with the code that said so where there was one."""

    outcome: Outcome
    code: ErrorCode | None = None


Then: TypeAlias = AskInit | AskEnd | Told | None


# What happens


class Event(enum.Enum):
    """What the program wants, or what happened to its requests."""

    OPEN = "initialise for the first time"
    WROTE = "a request that begins the transaction at the coordinator leaves now"
    DOUBTED = "such a request got no response: it may still arrive"
    COMMIT = "everything is acknowledged: commit"
    ABORT = "abort the transaction"
    PREPARE = "everything is acknowledged: wait for the outside decision"
    RECOVER = "make sure that a transaction can begin"
    GIVE_UP = "the deadline is over, or the caller was cancelled"


@dataclass(frozen=True, slots=True)
class Begin:
    """A transaction begins, in the protocol that the cluster has now."""

    tv2: bool
    bumps: bool


@dataclass(frozen=True, slots=True)
class TakenOver:
    """A two-phase producer has opened: `prepared` if a predecessor's transaction waits for its outcome."""

    producer: Producer
    prepared: bool


@dataclass(frozen=True, slots=True)
class Complete:
    """What was decided for the prepared transaction."""

    commit: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """The coordinator answered what was asked; `producer` is what it gave, NO_PRODUCER for none."""

    code: ErrorCode = ErrorCode.NONE
    producer: Producer = NO_PRODUCER


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """The connection ended first; `sent` if the request may have reached the coordinator."""

    sent: bool


Anything: TypeAlias = Event | Begin | TakenOver | Complete | Answer | NoAnswer
