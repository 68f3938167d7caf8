"""What the coordinators need from the broker. `broker/node.py` passes it in; tests pass in doubles."""

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple, Protocol

from fencepost.coordinator.metadata.image import MetadataImage
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition

KeyValue = tuple[bytes | None, bytes | None]
"""One record of a coordinator's log; a value of None is a tombstone."""


class Clock(Protocol):
    """The only source of time."""

    def now_ms(self) -> int:
        """Wall-clock time, in ms since 1970."""

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""


@dataclass(frozen=True, slots=True)
class ProducerTag:
    """Marks a batch of a coordinator's log as part of a client's transaction (transactional offset commits)."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class ReplayedBatch:
    """One batch of a coordinator's log, read back in order at start."""

    base_offset: int
    producer_id: int
    producer_epoch: int
    transactional: bool
    marker_commits: bool | None
    """None: a data batch. True or False: a COMMIT or an ABORT marker of `producer_id`; `records` is then empty."""
    records: Sequence[KeyValue]
    timestamp_ms: int


class LogWriteFailed(Exception):
    """An append to a coordinator's log was refused; the client receives `coordinator_error` of `code`."""

    def __init__(self, code: ErrorCode, why: str) -> None:
        super().__init__(why)
        self.code = code


class LogBatchTooLarge(LogWriteFailed):
    """The batch is too large for the log and nothing was appended; a batch of fewer records may fit."""


def coordinator_error(code: ErrorCode) -> ErrorCode:
    """The error a client receives if its coordinator's own log refused a record (table of row T7, also for groups)."""
    match code:
        case (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            | ErrorCode.NOT_ENOUGH_REPLICAS
            | ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            | ErrorCode.REQUEST_TIMED_OUT
        ):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        case ErrorCode.NOT_LEADER_OR_FOLLOWER | ErrorCode.KAFKA_STORAGE_ERROR:
            return ErrorCode.NOT_COORDINATOR
        case ErrorCode.MESSAGE_TOO_LARGE | ErrorCode.RECORD_LIST_TOO_LARGE | ErrorCode.INVALID_FETCH_SIZE:
            return ErrorCode.UNKNOWN_SERVER_ERROR
        case _:
            return code


class LogSuperseded(LogWriteFailed):
    """Another writer appended first: the log does not end where its writer expected, and nothing was appended.

    A writer that owns its log is fenced then, unless its log reports otherwise (`LogListener`).
    """


class LogUnreadable(Exception):
    """A coordinator's log cannot be opened or replayed to its end; the text names the place and the reason."""


class LogReadFailed(LogUnreadable):
    """The disk failed, which proves no damage: the same read may succeed later."""


class Ticket(Protocol):
    """A handle on one append to a coordinator's log, or on the log's current end, for waiting until it is durable.

    The file engine binds a ticket to its offset at once and never refuses it afterwards. A store that several brokers
    share binds offsets when it commits. It refuses an append if another writer's rows came first.
    """

    @property
    def end_offset(self) -> int | None:
        """The offset after the last record; None until the append is bound to its offset."""

    @property
    def is_durable(self) -> bool:
        """Whether `durable` returns at once, without a checkpoint. False for a ticket that failed."""

    def request(self) -> None:
        """Have the next flush make this append durable, without waiting."""

    async def durable(self) -> None:
        """Return when this append, and all before it in its log, is durable.

        Raises LogSuperseded if another writer's rows came first: nothing was appended, and the caller decides again.
        Raises LogWriteFailed if it never becomes durable: the writer is fenced (NOT_COORDINATOR), or a flush failed.
        """


class LogNotHere(LogUnreadable):
    """A replay needs bytes that another process keeps. Await `arrived`, then begin the replay again."""

    def __init__(self, why: str, arrived: Callable[[], Awaitable[None]]) -> None:
        super().__init__(why)
        self.arrived = arrived


class LogListener(Protocol):
    """What a log reports to its shard. A failed ticket raises only after its log has reported why."""

    def apply_external(self, batch: "ReplayedBatch") -> None:
        """Another writer appended `batch` (a transaction's marker); no append of this shard is refused for it."""

    def superseded(self) -> None:
        """Another writer's rows came first: appends whose tickets are still open were refused, or follow the end of a
        transaction that the state has behind them.
        """

    def fenced(self) -> None:
        """Another broker owns the log now. Every open ticket fails with NOT_COORDINATOR."""


class CoordinatorLog(Protocol):
    """One partition of an internal topic, as its coordinator sees it."""

    listener: LogListener | None
    """Receives reports about other writers. The file engine has no other writers and never calls it."""

    @property
    def leader_epoch(self) -> int:
        """The epoch of this broker's leadership of the partition."""

    @property
    def newest(self) -> Ticket:
        """A ticket for everything appended so far; where several brokers write, it is a read barrier."""

    def append(self, records: Sequence[KeyValue], now_ms: int, producer: ProducerTag | None = None) -> Ticket:
        """Append `records` as one atomic batch. Raises LogWriteFailed; then nothing was appended."""

    def replay(self) -> Iterator[ReplayedBatch]:
        """Every batch of the log from its start, in order.

        Raises LogUnreadable at the first damaged one, LogNotHere at the first whose bytes have not arrived yet.
        """


class CoordinatorLogs(Protocol):
    """The partitions of one internal topic."""

    @property
    def count(self) -> int:
        """How many partitions the topic has (50, as in Kafka; never changed at run time)."""

    def log(self, partition: int) -> CoordinatorLog:
        """The log of `partition`, made on first use. Raises LogUnreadable."""

    def existing(self) -> Collection[int]:
        """The partitions that have a log on disk: those to replay at start."""


class Marker(NamedTuple):
    """The content of the control batch that ends a transaction, the same on each partition (rows T8, T9)."""

    producer_id: int
    producer_epoch: int
    commit: bool
    """True for a COMMIT marker, False for an ABORT marker."""
    coordinator_epoch: int
    """The epoch of the coordinator that decided; a partition refuses a marker with an older one."""
    transaction_version: int
    """0 to 2. With 2, `producer_epoch` must be above the records' epoch; with 0 and 1, not below it (row T9)."""


class HowEnded(Enum):
    """What logs tell of the end of a transaction (docs/decisions/0080-one-round-for-endtxn.md)."""

    COMMITTED = auto()
    """One of them has its COMMIT marker."""
    ABORTED = auto()
    """One of them has its ABORT marker."""
    NOT_ENDED = auto()
    """None of them has a marker of it."""
    UNKNOWN = auto()
    """As NOT_ENDED, but some cannot be read yet."""


class AppendedMarkers(Protocol):
    """Markers that were appended in the same instant as the decision."""

    in_one_commit: bool
    """Whether one commit has all or none of them and the decision. If not, any of them may be durable first."""

    @property
    def results(self) -> Mapping[TopicPartition, ErrorCode]:
        """NONE for each partition to which the marker was appended, else why it was not."""

    def settled_now(self) -> Mapping[TopicPartition, ErrorCode] | None:
        """The results, if the appended markers were durable and visible at once; else None."""

    async def settled(self) -> Mapping[TopicPartition, ErrorCode]:
        """The results, once the appended markers are durable and visible."""


class MarkerWriter(Protocol):
    """Writes the control batches that end a transaction on its partitions."""

    async def write_markers(
        self, marker: Marker, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Append `marker` to each partition and return when all are durable and visible.

        After a marker on `__consumer_offsets` the group coordinator applies or drops the pending offsets.
        """

    def append_with_decision(
        self, marker: Marker, partitions: Collection[TopicPartition], may_be_first: bool
    ) -> AppendedMarkers | None:
        """Append `marker` to each partition, in the instant in which the decision was appended.

        Unless the marker `may_be_first`, or the store commits everything appended in one instant at once, append
        nothing and return None: it must not be durable before the decision.
        """

    def how_ended(self, producer_id: int, marker_epoch: int, partitions: Collection[TopicPartition]) -> HowEnded:
        """What the partitions' logs know of the end of the transaction whose markers have this epoch."""


class ProducerIdSource(Protocol):
    """Allocates producer ids, each only once."""

    async def next_producer_id(self) -> int:
        """A new producer id (>= 1), from blocks of 1000 that the metadata log reserves."""


class RemoteCoordinators(Protocol):
    """The transaction coordinators of other brokers."""

    def coordinates(self, transactional_id: str) -> bool:
        """Whether another broker coordinates this id, or one that is not known yet."""

    async def ensure(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        add: bool,
    ) -> dict[TopicPartition, ErrorCode]:
        """The coordinator's error for each partition: whether it belongs to the open transaction, or with `add` does
        now.
        """

    def lost_some(self, partition: int) -> bool:
        """Whether the database has lost records of this partition of `__transaction_state` since it last changed hands,
        maybe: then this broker is the first one to coordinate its ids.
        """


class TopicView(Protocol):
    """What the coordinators may ask about topics."""

    @property
    def image(self) -> MetadataImage:
        """The newest durable metadata, a value."""

    def exists(self, partition: TopicPartition) -> bool:
        """Whether the partition is in the cluster's metadata."""

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name behind a 16-byte topic id."""

    def topic_id(self, topic: str) -> bytes | None:
        """The 16-byte id of a topic."""
