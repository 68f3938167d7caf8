"""What the coordinators need from the machine room; `broker/node.py` hands it in, tests hand in doubles of it."""

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition

if TYPE_CHECKING:
    from fencepost.coordinator.metadata.image import MetadataImage

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
    """An append to a coordinator's log was refused; `coordinator_error` of `code` is what the client hears."""

    def __init__(self, code: ErrorCode, why: str) -> None:
        super().__init__(why)
        self.code = code


class LogBatchTooLarge(LogWriteFailed):
    """The log takes no batch of that size, and took nothing of it; fewer records may fit."""


def coordinator_error(code: ErrorCode) -> ErrorCode:
    """What a client hears where its coordinator's own log refused a record (row T7's table serves groups, too)."""
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
    """Another writer appended first: the log does not end where its writer believed, and nothing was appended.

    For a writer that owns its log that means it is fenced, unless its log says otherwise (`LogListener`).
    """


class LogUnreadable(Exception):
    """A coordinator's log cannot be opened, or not read back to its end; the text names the place and the reason."""


class Ticket(Protocol):
    """One append to a coordinator's log, or a look at its end, until it is durable.

    The file engine binds a ticket to its offset at once and never refuses it afterwards. A store that several brokers
    share binds offsets when it commits, and refuses an append that another writer's rows overtook.
    """

    @property
    def end_offset(self) -> int | None:
        """The offset after the last record; None until the append is bound to its place."""

    @property
    def is_durable(self) -> bool:
        """Whether `durable` returns at once, without a checkpoint. False for a ticket that failed."""

    async def durable(self) -> None:
        """Return when this append, and all before it in its log, is durable.

        Raises LogSuperseded where another writer's rows came first: nothing of the append exists, decide again. Raises
        LogWriteFailed where it never will be durable: the writer is fenced (NOT_COORDINATOR), or a flush failed.
        """


class LogNotHere(LogUnreadable):
    """A replay needs bytes that another process keeps; `arrived` returns when it may begin again."""

    def __init__(self, why: str, arrived: Callable[[], Awaitable[None]]) -> None:
        super().__init__(why)
        self.arrived = arrived


class LogListener(Protocol):
    """What a log reports to the shard over it. A failed ticket raises only after its log has reported why."""

    def absorb(self, batch: "ReplayedBatch") -> None:
        """Another writer appended `batch`, which refuses no append of ours (the marker of a transaction)."""

    def superseded(self) -> None:
        """Appends whose tickets are still open were refused, because another writer's rows came first."""

    def fenced(self) -> None:
        """Another broker owns the log now. Every open ticket fails with NOT_COORDINATOR."""


class CoordinatorLog(Protocol):
    """One partition of an internal topic, as its coordinator sees it."""

    listener: LogListener | None
    """Who hears of other writers. The file engine has none, and calls nothing."""

    @property
    def newest(self) -> Ticket:
        """A ticket for all that was appended so far; where several brokers write, it is a read barrier."""

    def append(self, records: Sequence[KeyValue], now_ms: int, producer: ProducerTag | None = None) -> Ticket:
        """Append `records` as one atomic batch. Raises LogWriteFailed; then nothing was appended."""

    def replay(self) -> Iterator[ReplayedBatch]:
        """Every batch of the log from its start, in order.

        Raises LogUnreadable at the first damaged one, LogNotHere at the first whose bytes are on their way.
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
    """What the control batch that ends a transaction says, the same on each of its partitions (rows T8, T9)."""

    producer_id: int
    producer_epoch: int
    commit: bool
    """Whether it commits; else it aborts."""
    coordinator_epoch: int
    """Of the coordinator that decided: a partition refuses the markers of one that was there before the last."""
    transaction_version: int
    """0 to 2; from 2 on `producer_epoch` must be above that of the records, before it must not be below (row T9)."""


class MarkerWriter(Protocol):
    """Writes the control batches that end a transaction on its partitions."""

    async def write_markers(
        self, marker: Marker, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Append `marker` to each partition and return when all are durable and visible.

        Markers on `__consumer_offsets` also tell the group coordinator (it applies or drops the pending offsets).
        """

    def write_at_once(
        self, marker: Marker, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode] | None:
        """As `write_markers`, where a marker is durable and visible as soon as it is appended.

        None, and nothing written, where it is not.
        """


class ProducerIdSource(Protocol):
    """Hands out producer ids, each once for ever."""

    async def next_producer_id(self) -> int:
        """A fresh producer id (>= 1), from blocks of 1000 that the metadata log reserves: none comes twice."""


class TopicView(Protocol):
    """What the coordinators may ask about topics."""

    @property
    def image(self) -> "MetadataImage":
        """The newest durable metadata, a value."""

    def exists(self, partition: TopicPartition) -> bool:
        """Whether the partition is in the cluster's metadata."""

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name behind a 16-byte topic id."""

    def topic_id(self, topic: str) -> bytes | None:
        """The 16-byte id of a topic."""
