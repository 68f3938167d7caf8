"""What the coordinator knows of one transactional id: one frozen value per phase.

            InitProducerId                       add partitions
    Dead ------------------> Empty ------------------------------------> Ongoing <--+ add more
     ^                      ^  |                                        |       |  |  |
     | transactional.id.    |  | TV2: abort with                 commit |       |  +--+
     | expiration.ms        |  | nothing written                        |       | abort, timeout, or
     +--- from Empty,       |  |                                        v       | InitProducerId by a
          CompleteCommit,   |  |                             PrepareCommit      v newcomer
          CompleteAbort     |  +----------------------+            |       PrepareAbort <---+
                            |                         |            |            |           |
                            |                         +------------|----------->+           |
                            |              all COMMIT markers are  |            | all ABORT markers
                            |              durable and visible     v            v are, too  |
                            +---- InitProducerId ------- CompleteCommit   CompleteAbort     |
                                                               |            |               |
                     add partitions: to Ongoing <--------------+------------+               |
                                                               +------------+---------------+
                                                               TV2: abort with nothing written

Everything in a value is durable truth and comes back by replay. What is under way (an append, markers that are being
written) is the shell's business and is in none of these (row T7; Kafka's pendingState and PrepareEpochFence have no
counterpart).
"""

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from fencepost.protocol.topics import TopicPartition

NO_PRODUCER_ID = -1
NO_EPOCH = -1


@dataclass(frozen=True, slots=True)
class Producer:
    """Who may write under a transactional id, and who the same client was just before.

    (`producer_id`, `epoch`) is the newest identity. (`previous_producer_id`, `last_epoch`) is the one that this very
    client gave up for it: a request that still shows it is a retry whose answer got lost, not a zombie (KIP-360,
    KIP-890). `last_epoch` is NO_EPOCH where the identity before belonged to somebody else, who must stay fenced.
    """

    producer_id: int
    epoch: int
    previous_producer_id: int = NO_PRODUCER_ID
    last_epoch: int = NO_EPOCH

    def is_retry(self, producer_id: int, epoch: int) -> bool:
        """Whether (`producer_id`, `epoch`) is the identity that this client held just before the newest one."""
        return self.last_epoch != NO_EPOCH and (producer_id, epoch) == (self.previous_producer_id, self.last_epoch)


@dataclass(frozen=True, slots=True)
class Dead:
    """The id was never seen, or has expired: nothing is remembered. In the log: no record, or a tombstone."""

    status: ClassVar[int] = 6
    name: ClassVar[str] = "Dead"


@dataclass(frozen=True, slots=True)
class Empty:
    """A producer has the id and has begun nothing since InitProducerId."""

    status: ClassVar[int] = 0
    name: ClassVar[str] = "Empty"

    producer: Producer
    timeout_ms: int
    updated_ms: int
    client_version: int = 0
    """The transaction version (0, 1 or 2) of the request that led here; it decides how markers are checked (row T9)."""


@dataclass(frozen=True, slots=True)
class Ongoing:
    """A transaction is open on `partitions` (at least one), since `started_ms`."""

    status: ClassVar[int] = 1
    name: ClassVar[str] = "Ongoing"

    producer: Producer
    timeout_ms: int
    partitions: frozenset[TopicPartition]
    started_ms: int
    updated_ms: int
    client_version: int = 0


@dataclass(frozen=True, slots=True)
class PrepareCommit:
    """The transaction is committed, for good; `partitions` are still owed a COMMIT marker.

    `producer.epoch` is the epoch of the markers. Where that is the last one of its producer id, `next_producer_id`
    takes over at epoch 0 on completion.
    """

    status: ClassVar[int] = 2
    name: ClassVar[str] = "PrepareCommit"

    producer: Producer
    timeout_ms: int
    partitions: frozenset[TopicPartition]
    started_ms: int
    updated_ms: int
    client_version: int = 0
    next_producer_id: int = NO_PRODUCER_ID
    next_producer_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class PrepareAbort:
    """The transaction is aborted, for good; `partitions` are still owed an ABORT marker. Fields as in PrepareCommit."""

    status: ClassVar[int] = 3
    name: ClassVar[str] = "PrepareAbort"

    producer: Producer
    timeout_ms: int
    partitions: frozenset[TopicPartition]
    started_ms: int
    updated_ms: int
    client_version: int = 0
    next_producer_id: int = NO_PRODUCER_ID
    next_producer_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class CompleteCommit:
    """The last transaction was committed and every partition has its marker."""

    status: ClassVar[int] = 4
    name: ClassVar[str] = "CompleteCommit"

    producer: Producer
    timeout_ms: int
    started_ms: int
    updated_ms: int
    client_version: int = 0


@dataclass(frozen=True, slots=True)
class CompleteAbort:
    """The last transaction was aborted and every partition has its marker."""

    status: ClassVar[int] = 5
    name: ClassVar[str] = "CompleteAbort"

    producer: Producer
    timeout_ms: int
    started_ms: int
    updated_ms: int
    client_version: int = 0


Prepared: TypeAlias = PrepareCommit | PrepareAbort
Completed: TypeAlias = CompleteCommit | CompleteAbort
Idle: TypeAlias = Empty | CompleteCommit | CompleteAbort
Known: TypeAlias = Empty | Ongoing | PrepareCommit | PrepareAbort | CompleteCommit | CompleteAbort
TxnState: TypeAlias = Dead | Known

DEAD = Dead()
PHASES: tuple[type[TxnState], ...] = (Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort, Dead)
"""The phases by Kafka's status number."""


@dataclass(frozen=True, slots=True)
class TxnRecord:
    """One record of `__transaction_state`: from here on, `transactional_id` is in `state`."""

    transactional_id: str
    state: TxnState


MAY_FOLLOW: dict[type[TxnState], frozenset[type[TxnState]]] = {
    Dead: frozenset({Empty}),
    Empty: frozenset({Empty, Ongoing, PrepareAbort, Dead}),
    Ongoing: frozenset({Ongoing, PrepareCommit, PrepareAbort}),
    PrepareCommit: frozenset({CompleteCommit}),
    PrepareAbort: frozenset({CompleteAbort}),
    CompleteCommit: frozenset({Empty, Ongoing, PrepareAbort, Dead}),
    CompleteAbort: frozenset({Empty, Ongoing, PrepareAbort, Dead}),
}
"""The arrows of the diagram (row T7): which phase may come after which. Nothing leads from Prepare back, or across."""
