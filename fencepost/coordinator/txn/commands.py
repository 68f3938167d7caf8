"""The commands to a transactional id, and the machine's replies."""

from collections.abc import Coroutine
from dataclasses import field
from typing import TYPE_CHECKING, Any, Never, TypeAlias

from fencepost.coordinator.decision import Decision
from fencepost.coordinator.txn.state import NO_EPOCH, NO_PRODUCER_ID, TxnRecord
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    from fencepost.coordinator.values import dataclass


@dataclass(frozen=True, slots=True)
class InitProducerId:
    """A client requests the newest identity of the id (row T2).

    `expected` is the (producer id, epoch) it still holds, None for a newcomer. `fresh_producer_id` is an unused
    producer id, or None: if one is needed the reply is NeedsProducerId, and the shell repeats the command with one.
    `keep_prepared`: an open transaction is not aborted but handed over, to be ended (KIP-939, row T23).
    """

    timeout_ms: int
    expected: tuple[int, int] | None = None
    fresh_producer_id: int | None = None
    keep_prepared: bool = False


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """Partitions (those of `__consumer_offsets` too) join the transaction; the first begins it (rows T3, T4, T16)."""

    producer_id: int
    epoch: int
    partitions: frozenset[TopicPartition]
    client_version: int = 0


@dataclass(frozen=True, slots=True)
class VerifyPartitions:
    """Are these partitions part of the open transaction of this producer (row T15)?"""

    producer_id: int
    epoch: int
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class EndTxn:
    """Commit or abort (row T7). `client_version` is 2 for EndTxn v5 and later (row T16): then the client continues with
    the answer's identity.
    """

    producer_id: int
    epoch: int
    commit: bool
    client_version: int = 0
    fresh_producer_id: int | None = None


@dataclass(frozen=True, slots=True)
class TimeOut:
    """The open transaction of this identity has lasted longer than its timeout (row T10)."""

    producer_id: int
    epoch: int
    fresh_producer_id: int | None = None


@dataclass(frozen=True, slots=True)
class Complete:
    """Every partition of the decided transaction has its marker."""


@dataclass(frozen=True, slots=True)
class Expire:
    """Expire the id because it was long unused (row T12), unless it has been used since `updated_ms`."""

    updated_ms: int


Command: TypeAlias = InitProducerId | AddPartitions | VerifyPartitions | EndTxn | TimeOut | Complete | Expire


@dataclass(frozen=True, slots=True)
class Answer:
    """The client's answer. It has an identity only with ErrorCode.NONE, and only if the request asks for one.

    CONCURRENT_TRANSACTIONS means here: the previous transaction is decided and some of its markers are not written; the
    shell repeats the command when they are. `after_markers`: the answer is final, and is sent when they are written.
    `missing` are the partitions that verification did not find. `ongoing` is the identity under which a kept
    transaction was written (row T23).
    """

    error: ErrorCode = ErrorCode.NONE
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH
    missing: frozenset[TopicPartition] = field(default=frozenset())
    after_markers: bool = False
    ongoing: tuple[int, int] = (NO_PRODUCER_ID, NO_EPOCH)


Waiting: TypeAlias = Coroutine[Any, Any, Answer]
"""An answer that has to wait for markers, for the disk or for a producer id: the caller awaits it."""


async def resolve(answer: Answer | Waiting) -> Answer:
    """The answer, awaited if necessary."""
    return answer if isinstance(answer, Answer) else await answer


@dataclass(frozen=True, slots=True)
class NeedsProducerId:
    """Nothing is decided: the shell repeats the command with a fresh producer id."""


Reply: TypeAlias = Answer | NeedsProducerId
TxnDecision: TypeAlias = Decision[TxnRecord, Reply, Never]
NEEDS_PRODUCER_ID = NeedsProducerId()
OK = Answer()


def refuse(error: ErrorCode) -> TxnDecision:
    """A decision that changes nothing and answers `error`."""
    return Decision(Answer(error))
