"""The consumer: records in batches or one by one, as a member of a group or with assigned partitions."""

from collections.abc import AsyncIterator, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self

import anyio
import anyio.lowlevel

from fencepost.client.background import Background
from fencepost.client.config import ConsumerConfig
from fencepost.client.consumer.committer import Committer
from fencepost.client.consumer.consumed import ConsumerBatch, ConsumerRecord
from fencepost.client.consumer.fetcher import Fetcher
from fencepost.client.consumer.positions import Positions
from fencepost.client.consumer.progress import Progress
from fencepost.client.consumer.reader import Reader
from fencepost.client.consumer.subscriber import Subscriber
from fencepost.client.core.numbers import whole_number
from fencepost.client.errors import ConfigError
from fencepost.client.facade import delegate
from fencepost.client.group.group_client import GroupClient
from fencepost.client.group.subscription import Subscription, Topics
from fencepost.client.key_value import K, V
from fencepost.client.keywords import Duration, Overflow
from fencepost.client.network.cluster import Cluster
from fencepost.client.options import seconds
from fencepost.extras import install
from fencepost.protocol.topics import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from fencepost.client.consumer.whole_transactions import WholeTransactions


_INSTALL_ARROW = install("arrow")


class Consumer(Generic[K, V]):
    """Reads topics; open it with `async with kafka.consumer("orders", group="billing")`.

    With a group it is a member from the start, and partitions change only between two batches. Without one it reads
    every partition of its topics, or those of `assign`. The next call raises an error of the background.
    """

    def __init__(
        self, cluster: Cluster, background: Background, topics: tuple[Topics, ...], config: ConsumerConfig, purpose: str
    ) -> None:
        if config.group_instance_id is not None and config.group_id is None:
            raise ConfigError("group_instance_id needs a group")
        self.group_id = config.group_id
        self._cluster = cluster
        self._background = background
        self._config = config
        self._purpose = purpose
        self._group = GroupClient(cluster, config, purpose)
        self._fetcher = Fetcher(cluster, config, purpose, self._group.fetch_committed if self.group_id else None)
        self._progress = Progress(self._fetcher, config)
        self._positions = Positions(cluster, config, purpose, self._fetcher, self._progress)
        self._committer = Committer(cluster, config, self._group, self._fetcher, self._progress, self._positions)
        self._reader: Reader[K, V] = Reader(cluster, config, self._group, self._fetcher, self._committer)
        self._subscriber = Subscriber(
            self, cluster, background, config, purpose, topics, self._group, self._fetcher, self._committer
        )
        self._scopes: list[anyio.CancelScope] = []

    def __repr__(self) -> str:
        group = "no group" if self.group_id is None else f"group {self.group_id!r}"
        wanted = self.subscription or "no subscription"
        return f"<Consumer of {wanted}: {group}, {len(self._fetcher.states)} partitions assigned>"

    async def __aenter__(self) -> Self:
        await anyio.lowlevel.checkpoint()
        await self._subscriber.open()
        # No await from here on: `__aexit__` ends what begins now, above all a membership.
        self._progress.is_open = True
        self._committer.begin()
        self._scopes.append(self._background.start_soon(self._fetcher.run))
        if self.group_id is not None and self._config.enable_auto_commit:
            self._scopes.append(self._background.start_soon(self._committer.run))
        self._subscriber.begin_tasks()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.is_open = False
        try:
            if error is None:
                await self._subscriber.end_membership()
        finally:
            for scope in self._scopes:
                scope.cancel()
            self._subscriber.end_tasks()
            self._progress.resting = True
            if self._progress.units is not None:
                self._progress.units.close()
            try:
                if self._group.membership is not None:
                    await self._group.membership.leave("the consumer is being closed")
            finally:
                self._fetcher.states = {}
                self._fetcher.close_sessions(self._background)
                for suffix in ("", "-join"):
                    self._cluster.release(self._purpose + suffix)

    @property
    def subscription(self) -> Subscription | None:
        """The subscribed topics or pattern; None with `assign`, or without a subscription."""
        return self._subscriber.subscription

    subscribe = delegate("_subscriber", Subscriber.subscribe)
    unsubscribe = delegate("_subscriber", Subscriber.unsubscribe)
    assign = delegate("_subscriber", Subscriber.assign)

    @property
    def assignment(self) -> set[TopicPartition]:
        """The assigned partitions."""
        return set(self._fetcher.states)

    def batches(self, max_records: int | None = None, max_wait: Duration = 0.0) -> AsyncIterator[ConsumerBatch[K, V]]:
        """Batches without end: each as soon as there is a record, or up to `max_wait` (seconds, or a timedelta) later
        if that fills it.

        Reading the next batch means that the one before is processed. Never yields an empty batch. A timeout of the
        event loop stops the wait without loss. Raises ReadError if reading cannot continue.
        """
        return self._reader.batches(self._most(max_records), seconds(max_wait))

    def read_to_end(self, max_records: int | None = None) -> AsyncIterator[ConsumerBatch[K, V]]:
        """Batches up to the ends that the assigned partitions have at the first read; the loop ends there.

        The end is the last stable offset for read_committed: the loop does not wait for open transactions. The next
        read gets later records. A member of a group waits for its first partitions, and reads partitions that are
        assigned later to their ends at that moment. Paused partitions are left out. Otherwise as `batches`. Raises
        ReadError if reading cannot continue.
        """
        from fencepost.client.consumer.to_end import BatchesToEnd  # here: few programs need it

        limit = self._most(max_records)
        return BatchesToEnd(self._reader, self._positions, limit, lambda: self._subscriber.subscription is not None)

    def _most(self, max_records: int | None) -> int:
        return self._config.max_poll_records if max_records is None else whole_number("max_records", max_records, 1)

    def __aiter__(self) -> AsyncIterator[ConsumerRecord[K, V]]:
        """One record at a time; each is in hand until the next read."""
        return self._reader.records()

    def arrow(
        self, *, max_bytes: int = 32 << 20, columns: Iterable[str] | None = None
    ) -> "AsyncIterator[pa.RecordBatch]":
        """Arrow record batches without end, and without a Python object per record.

        Each has records of one partition in order, from one response (up to about `max_bytes` of unpacked batches).
        Columns: topic (dictionary of string), partition (int32), offset (int64), timestamp (ms, UTC; null if the
        producer gave none), timestamp_type (0 CreateTime, 1 LogAppendTime), key and value (binary), headers (list of
        key and value; null if a record has none). `columns` names the columns to build; fewer are cheaper. Reading the
        next one means that the one before is processed, as in `batches`. Raises ImportError without pyarrow or numpy.
        """
        try:
            from fencepost.client.consumer.arrow import ArrowBatches  # here: not installed with every client
        except ImportError as error:
            missing = f"arrow() needs pyarrow and numpy, and {error.name} is not installed here"
            raise ImportError(f"{missing}. Install both with: {_INSTALL_ARROW}", name=error.name) from error

        return ArrowBatches(self._reader, max_bytes, columns)

    def transactions(self, *, max_bytes: int = 64 << 20, overflow: Overflow = "error") -> "WholeTransactions[K, V]":
        """The committed transactions of the assigned partitions without end, each as one unit, never a part of it.

        Records of incomplete transactions are held, up to `max_bytes`. Beyond that the consumer raises
        TransactionTooLargeError, or with `overflow="spill"` uses a temporary file. Reading the next one means that the
        one before is processed; `commit` and `send_offsets` commit so that none is cut, doubled or lost. Call this
        before any other read, and do not combine it with other reads. The guide has its limits. Raises ConfigError.
        """
        from fencepost.client.consumer.unit_reader import UnitReader  # here: few programs need it
        from fencepost.client.consumer.whole_transactions import WholeTransactions

        if not isinstance(self._progress.units, UnitReader):
            self._progress.units = UnitReader(self._cluster, self._reader, max_bytes, overflow)
        return WholeTransactions(self._progress.units)

    @property
    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        return self._positions.paused()

    position = delegate("_positions", Positions.position)
    seek = delegate("_positions", Positions.seek)
    seek_to_beginning = delegate("_positions", Positions.seek_to_beginning)
    seek_to_end = delegate("_positions", Positions.seek_to_end)
    seek_to_timestamp = delegate("_positions", Positions.seek_to_timestamp)
    pause = delegate("_positions", Positions.pause)
    resume = delegate("_positions", Positions.resume)
    lag = delegate("_positions", Positions.lag)
    metrics = delegate("_positions", Positions.metrics)
    partitions_for = delegate("_positions", Positions.partitions_for)
    beginning_offsets = delegate("_positions", Positions.beginning_offsets)
    end_offsets = delegate("_positions", Positions.end_offsets)
    offsets_for_times = delegate("_positions", Positions.offsets_for_times)

    committed = delegate("_committer", Committer.committed)
    committed_offsets = delegate("_committer", Committer.committed_offsets)
    commit = delegate("_committer", Committer.commit)


def reader_of(consumer: Consumer[Any, Any]) -> Reader[Any, Any]:
    """The consumer's Reader, for transactions and for the blocking client."""
    return consumer._reader
