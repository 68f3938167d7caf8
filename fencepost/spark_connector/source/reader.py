"""Reads one range of offsets in a Spark task: fetches ahead, skips aborted records, makes Arrow batches."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from fencepost.client.errors import code_of
from fencepost.protocol.batch_header import BatchHeader, CorruptBatch, OversizedBatch, check_crc, iter_headers
from fencepost.protocol.column_types import RecordColumns
from fencepost.protocol.columns import iter_columns
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.isolation import AbortedFilter
from fencepost.protocol.messages import api01_fetch
from fencepost.protocol.session import Sent
from fencepost.protocol.topics import IsolationLevel, TopicPartition
from fencepost.spark_connector.network.cluster import Cluster
from fencepost.spark_connector.network.wire import BrokerError, Connection, ConnectionLostError
from fencepost.spark_connector.offsets import EARLIEST, LATEST
from fencepost.spark_connector.source.arrow import BatchMaker, fields_of

log = logging.getLogger(__name__)

_MAX_FETCH_BYTES = 1 << 30


class DataLossError(RuntimeError):
    """Planned records no longer exist. With the option failOnDataLoss=false the query continues without them."""


class BatchTooLargeError(RuntimeError):
    """A batch decompresses to more than the option maxDecompressedBytes allows. It is not damaged."""


@dataclass(frozen=True)
class FetchSettings:
    """The options that a reader needs. Sizes are bytes, times are milliseconds."""

    isolation: IsolationLevel
    columns: tuple[str, ...]
    fail_on_data_loss: bool
    fetch_bytes: int
    fetch_wait_ms: int
    check_crcs: bool
    max_decompressed_bytes: int


class Fetched(NamedTuple):
    """One response with at least one whole batch: the visible batches, and the next fetch offset."""

    buffer: memoryview
    batches: list[tuple[int, BatchHeader]]
    next_offset: int


class _Sent(NamedTuple):
    connection: Connection
    request: Sent


class RangeReader:
    """Fetches one partition from `start` to before `stop`, one response ahead of its caller.

    With `ahead` False no request is in flight between two responses. Several readers can then share a connection.

    Raises DataLossError if records no longer exist (see failOnDataLoss) and CorruptBatch for a wrong CRC. Raises
    BrokerError if the broker cannot serve the planned offsets until the time for an operation ends.
    """

    def __init__(
        self,
        cluster: Cluster,
        tp: TopicPartition,
        start: int,
        stop: int,
        settings: FetchSettings,
        *,
        ahead: bool = True,
    ) -> None:
        self.tp = tp
        self._ahead = ahead
        self._cluster = cluster
        self.start = start
        """Of the records to give; it rises where they were deleted."""
        self.limit_bytes = settings.max_decompressed_bytes
        self._position = start
        self._stop = stop
        self._settings = settings
        self._fetch_bytes = settings.fetch_bytes
        self._in_flight: _Sent | None = None
        self._last_progress = time.monotonic()

    def fetches(self) -> Iterator[Fetched]:
        """The responses up to `stop`. The next request is sent before a response is yielded."""
        while self._position < self._stop:
            try:
                data = self._cluster.with_retries(self._receive)
            except BrokerError as error:
                if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                self._lost(f"the partition was deleted, and offsets {self._position} to {self._stop} with it")
                return
            fetched = self._fetched(data) if data is not None else None
            if fetched is not None:
                self._position = fetched.next_offset
                self._last_progress = time.monotonic()
                if self._ahead and self._position < self._stop:
                    self._prefetch()
                yield fetched
            del data, fetched  # otherwise this response stays in memory while the task waits for the next one

    def arrow_batches(self) -> Iterator[Any]:
        """The visible records of the range, as Arrow batches of the chosen columns."""
        return arrow_batches_of(self, self._stop, self._settings.columns)

    def _prefetch(self) -> None:
        # A failure loses nothing: the next _receive finds no request in flight and sends another.
        try:
            self._in_flight = self._send()
        except BrokerError:
            self._cluster.forget()
            self._in_flight = None

    def _send(self) -> _Sent:
        settings = self._settings
        connection = self._cluster.connection_to(self._cluster.leader_of(self.tp))
        partition = api01_fetch.FetchPartition(
            partition=self.tp.partition, fetch_offset=self._position, partition_max_bytes=self._fetch_bytes
        )
        request = api01_fetch.FetchRequest(
            max_wait_ms=settings.fetch_wait_ms,
            min_bytes=1,
            max_bytes=self._fetch_bytes,
            isolation_level=int(settings.isolation),
            topics=[api01_fetch.FetchTopic(topic=self.tp.topic, partitions=[partition])],
        )
        return _Sent(connection, connection.send("Fetch", request))

    def _receive(self) -> Any:
        """The partition's part of one response; None if the position had to move. Raises BrokerError."""
        sent, self._in_flight = self._in_flight or self._send(), None
        response = sent.connection.receive(sent.request)
        if response.error_code != ErrorCode.NONE:
            raise BrokerError(f"fetch of {self.tp}", code_of(response.error_code))
        for topic in response.responses:
            for partition in topic.partitions:
                code = code_of(partition.error_code)
                if code is ErrorCode.OFFSET_OUT_OF_RANGE:
                    self._move_into_range()
                    return None
                if code is not ErrorCode.NONE:
                    raise BrokerError(f"fetch of {self.tp} at offset {self._position}", code)
                return partition
        raise ConnectionLostError(sent.connection.address, f"a response without {self.tp}")

    def _fetched(self, data: Any) -> Fetched | None:
        buffer = memoryview(data.records if data.records is not None else b"")
        aborted = None
        if self._settings.isolation is IsolationLevel.READ_COMMITTED:
            aborted = [(entry.producer_id, entry.first_offset) for entry in data.aborted_transactions or ()]
        aborted_filter = AbortedFilter(aborted)
        visible: list[tuple[int, BatchHeader]] = []
        next_offset = self._position
        for at, header in iter_headers(buffer):
            if self._settings.check_crcs and not check_crc(buffer, at, header):
                raise CorruptBatch(f"{self.tp}: the batch at offset {header.base_offset} fails its CRC")
            if header.base_offset >= self._stop:
                next_offset = self._stop
                break
            if aborted_filter.admits(header, buffer, at):
                visible.append((at, header))
            next_offset = header.next_offset
        if next_offset > self._position:
            return Fetched(buffer, visible, next_offset)
        self._without_progress(data, len(buffer))
        return None

    def _without_progress(self, data: Any, size_bytes: int) -> None:
        """The response holds no whole new batch: fetch more bytes next time, or wait until the time limit."""
        if size_bytes and self._fetch_bytes < _MAX_FETCH_BYTES:
            self._fetch_bytes = min(2 * self._fetch_bytes, _MAX_FETCH_BYTES)
            return
        if time.monotonic() - self._last_progress > self._cluster.settings.api_timeout_ms / 1000:
            where = f"the last stable offset is {data.last_stable_offset}, the high watermark {data.high_watermark}"
            raise BrokerError(
                f"{self.tp}: offsets {self._position} to {self._stop} were planned, but nothing can be read; {where}",
                ErrorCode.REQUEST_TIMED_OUT,
            )

    def _move_into_range(self) -> None:
        first = self._cluster.list_offsets({self.tp: EARLIEST}, IsolationLevel.READ_UNCOMMITTED)[self.tp]
        end = self._cluster.list_offsets({self.tp: LATEST}, IsolationLevel.READ_UNCOMMITTED)[self.tp]
        if first <= self._position <= end:
            # The log changed between the two responses, or a new leader does not know its high watermark yet.
            raise BrokerError(f"{self.tp}: offset {self._position} cannot be read yet", ErrorCode.OFFSET_NOT_AVAILABLE)
        resume_at = min(first, self._stop) if first > self._position else self._stop
        self._lost(f"offsets {self._position} to {resume_at} were deleted, the partition now holds {first} to {end}")
        self.start = self._position = resume_at

    def _lost(self, what: str) -> None:
        lost(self.tp, what, self._settings)


def lost(tp: TopicPartition, what: str, settings: FetchSettings) -> None:
    """Planned records are gone: a warning, or DataLossError."""
    if settings.fail_on_data_loss:
        raise DataLossError(f"{tp}: {what}; with failOnDataLoss=false the query continues without them")
    log.warning("%s: %s; the query continues without them (failOnDataLoss=false)", tp, what)


class Fetches(Protocol):
    """A reader of one range of a partition."""

    tp: TopicPartition
    start: int
    """The first offset to give; it rises where records were deleted."""
    limit_bytes: int
    """The most bytes to which a batch may decompress."""

    def fetches(self) -> Iterator[Fetched]:
        """The visible batches of the range, in order. The first of them may begin below `start`."""


def arrow_batches_of(reader: Fetches, stop: int, columns: tuple[str, ...]) -> Iterator[Any]:
    """The visible records from the reader's start to before `stop`, as Arrow batches of the chosen columns."""
    maker, fields = BatchMaker(reader.tp, columns), fields_of(columns)
    for fetched in reader.fetches():
        found = columns_of(reader, fetched.buffer, fetched.batches, reader.start, stop, fields)
        yield from map(maker.batch, found)
        del fetched, found  # otherwise they stay in memory while the reader waits for the next response


def columns_of(
    reader: Fetches,
    buffer: memoryview,
    batches: list[tuple[int, BatchHeader]],
    start: int,
    stop: int,
    fields: frozenset[str],
) -> Iterator[RecordColumns]:
    """`iter_columns` of a reader's batches. Raises BatchTooLargeError and CorruptBatch."""
    try:
        yield from iter_columns(
            buffer, batches, first_offset=start, stop_offset=stop, fields=fields, max_bytes=reader.limit_bytes
        )
    except OversizedBatch as error:
        raise BatchTooLargeError(f"{reader.tp}: {error}. Raise the option maxDecompressedBytes to read it") from error
