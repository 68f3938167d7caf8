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

| phase          | number | may come after (row T7)                       | what leads to it                         |
|----------------|--------|-----------------------------------------------|------------------------------------------|
| Dead           | 6      | Empty, CompleteCommit, CompleteAbort          | expiration                               |
| Empty          | 0      | Dead, Empty, CompleteCommit, CompleteAbort    | InitProducerId                           |
| Ongoing        | 1      | Empty, CompleteCommit, CompleteAbort, Ongoing | the first partition; more; kept (row T23)|
| PrepareCommit  | 2      | Ongoing                                       | EndTxn(commit)                           |
| PrepareAbort   | 3      | Ongoing; under TV2 every idle phase           | EndTxn(abort), a timeout, a newcomer     |
| CompleteCommit | 4      | PrepareCommit                                 | every partition has its COMMIT marker    |
| CompleteAbort  | 5      | PrepareAbort                                  | every partition has its ABORT marker     |
| (epoch fence)  | 7      | Ongoing                                       | never written, see below                 |

Kafka's PrepareEpochFence (7) exists in memory only: between the bump that fences and the record of the abort.
Here both are one decision and one record, PrepareAbort with the bumped epoch, so nothing can happen between them.

Replay restores every field of a value. The shell knows what is under way (an append, markers that are being written);
no value contains it (Kafka's pendingState has no counterpart).
"""

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from fencepost.coordinator.ports import Marker
from fencepost.protocol.topics import TopicPartition

NO_PRODUCER_ID = -1
NO_EPOCH = -1


@dataclass(frozen=True, slots=True)
class Producer:
    """The identity that may write under a transactional id, and the same client's identity just before.

    (`producer_id`, `epoch`) is the newest identity. (`previous_producer_id`, `last_epoch`) is the one that the same
    client gave up for it: a request that still shows it is a retry whose answer got lost, not a zombie (KIP-360,
    KIP-890). `last_epoch` is NO_EPOCH if another client held the identity before: that client must stay fenced.
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
    """The id was never used, or has expired. In the log: no record, or a tombstone."""

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
    """A transaction is open on `partitions` (at least one), since `started_ms`.

    `next_producer_id` is set if a successor took the transactional id over and kept the transaction, to end it as an
    outside coordinator decides (KIP-939, row T23). Only that identity may end it, and no client may add to it. The
    records in the partitions, and so the markers, belong to `producer`.
    """

    status: ClassVar[int] = 1
    name: ClassVar[str] = "Ongoing"

    producer: Producer
    timeout_ms: int
    partitions: frozenset[TopicPartition]
    started_ms: int
    updated_ms: int
    client_version: int = 0
    next_producer_id: int = NO_PRODUCER_ID
    next_producer_epoch: int = NO_EPOCH

    @property
    def is_kept(self) -> bool:
        """Whether a successor holds the transaction only to end it."""
        return self.next_producer_id != NO_PRODUCER_ID


@dataclass(frozen=True, slots=True)
class PrepareCommit:
    """The transaction is committed, for good; `partitions` still lack a COMMIT marker.

    `producer.epoch` is the epoch of the markers. If that is the last one of its producer id, or a successor kept the
    transaction, `next_producer_id` takes over on completion, at `next_producer_epoch` (NO_EPOCH stands for 0).
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
    """The transaction is aborted, for good; `partitions` still lack an ABORT marker. Fields as in PrepareCommit."""

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


def holder(state: Known) -> tuple[int, int]:
    """The (producer id, epoch) that a request must show now: the newest that a client received."""
    if isinstance(state, Ongoing) and state.is_kept:
        return state.next_producer_id, state.next_producer_epoch
    return state.producer.producer_id, state.producer.epoch


def marker_of(state: Prepared, coordinator_epoch: int) -> Marker:
    """The marker of a decided transaction. To write one twice does no harm (rows T8, T25).

    `coordinator_epoch` is the leader epoch of the coordinator's partition (row T9).
    """
    producer, is_commit = state.producer, isinstance(state, PrepareCommit)
    return Marker(producer.producer_id, producer.epoch, is_commit, coordinator_epoch, state.client_version)


def is_evidence(state: TxnState) -> bool:
    """Whether the state is decided and its marker proves how, and so may be durable before it (decision 0080).

    Only TV2 gives each transaction an epoch of its own. A new producer id would not follow from the marker.
    """
    return (
        isinstance(state, PrepareCommit | PrepareAbort)
        and state.client_version >= 2
        and state.next_producer_id == NO_PRODUCER_ID
    )


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
"""The arrows of the diagram (row T7): which phase may follow which. From Prepare only its own Complete may follow."""
