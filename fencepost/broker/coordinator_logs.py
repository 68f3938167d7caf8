"""The coordinators' view of partition logs: records are appended as atomic batches, and read back at a start."""

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

import trio

from fencepost.broker.log.durability.flusher import LogFlusher, LogOffline
from fencepost.broker.log.log_store import Missing
from fencepost.broker.log.partition import AppendOrigin, PartitionLog
from fencepost.broker.log.reading import load, read_batches
from fencepost.broker.log.results import Ticket
from fencepost.broker.log.storage.store import SHORTAGE_PAUSE_SECONDS, Bytes, CorruptLogFile, is_shortage
from fencepost.coordinator.ports import (
    CoordinatorLog,
    KeyValue,
    LogBatchTooLarge,
    LogListener,
    LogNotHere,
    LogSuperseded,
    LogUnreadable,
    LogWriteFailed,
    ProducerTag,
    ReplayedBatch,
)
from fencepost.protocol.batch_header import CorruptBatch, check_crc, iter_headers
from fencepost.protocol.control_records import ControlType, read_marker
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import build_own_batch
from fencepost.protocol.records import decode_records
from fencepost.protocol.topics import IsolationLevel, TopicPartition

logger = logging.getLogger(__name__)

REPLAY_BYTES = 1 << 20

_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


class LogTicket:
    """The coordinator's `Ticket` for an append to a partition log."""

    __slots__ = ("_flusher", "_ticket")

    def __init__(self, flusher: LogFlusher, ticket: Ticket) -> None:
        self._flusher = flusher
        self._ticket = ticket

    @property
    def end_offset(self) -> int | None:
        ticket = self._ticket
        is_bound = not ticket.log.commits_remotely or (not ticket.error and ticket.is_settled)
        return ticket.end_offset if is_bound else None

    @property
    def is_durable(self) -> bool:
        return not self._ticket.error and self._flusher.is_settled(self._ticket, throttled=False)

    def request(self) -> None:
        self._flusher.schedule(self._ticket.log)

    async def durable(self) -> None:
        """Return when everything below `end_offset` is durable. Raises LogWriteFailed if it never will be."""
        ticket = self._ticket
        try:
            await self._flusher.wait(ticket, throttled=False)
        except LogOffline as error:
            raise LogWriteFailed(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error
        if ticket.error is not ErrorCode.NONE and ticket.log.disowned:
            raise LogWriteFailed(ErrorCode.NOT_COORDINATOR, f"{ticket.log.tp} is no longer led by this broker")
        if ticket.error is not ErrorCode.NONE:
            raise LogSuperseded(ErrorCode.NOT_COORDINATOR, f"{ticket.log.tp} rejected a batch: {ticket.error.name}")


class PartitionCoordinatorLog:
    """One internal partition as a `CoordinatorLog`."""

    def __init__(self, log: PartitionLog, flusher: LogFlusher, epoch: int | None = None) -> None:
        """`epoch` is that of the coordinator; None: the leader epoch."""
        self.listener: LogListener | None = None
        self._log = log
        self._flusher = flusher
        self._epoch = epoch
        log.follower = self

    @property
    def is_disowned(self) -> bool:
        return self._log.disowned

    @property
    def leader_epoch(self) -> int:
        return self._log.leader_epoch if self._epoch is None else self._epoch

    @property
    def newest(self) -> LogTicket:
        return LogTicket(self._flusher, self._log.newest_ticket())

    def append(self, records: Sequence[KeyValue], now_ms: int, producer: ProducerTag | None = None) -> LogTicket:
        assert records, "a log with an empty batch cannot be read back"
        batch, header = build_own_batch(
            now_ms,
            records,
            producer_id=-1 if producer is None else producer.producer_id,
            producer_epoch=-1 if producer is None else producer.producer_epoch,
            transactional=producer is not None,
        )
        info = self._log.append(batch, AppendOrigin.COORDINATOR, now_ms, header=header)
        if info.error:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE if self._log.offline else info.error
            failed = LogBatchTooLarge if info.error in _TOO_LARGE else LogWriteFailed
            raise failed(code, f"{self._log.tp} rejected a batch: {info.error.name} {info.message or ''}")
        return LogTicket(self._flusher, info)

    def foreign(self, rows: Sequence[Bytes], refused: bool) -> None:
        if self.listener is None:
            return
        if refused:
            self.listener.superseded()
            return
        for row in rows:
            for batch in _batches(bytes(row), self._log.tp):
                self.listener.apply_external(batch.replayed)

    def disowned(self) -> None:
        if self.listener is not None:
            self.listener.fenced()

    def replay(self) -> Iterator[ReplayedBatch]:
        """Every batch from the log's start to its end, in order. Raises LogUnreadable at the first damaged one."""
        for _, batch in self.replay_from(self._log.log_start_offset):
            yield batch

    def replay_from(self, offset: int) -> Iterator[tuple[int, ReplayedBatch]]:
        """Like `replay`, from `offset` on, where a batch must begin. Yields the next offset and the batch."""
        try:
            for batch in self._batches(offset):
                offset = batch.next_offset
                yield offset, batch.replayed
        except (CorruptBatch, CorruptLogFile, OSError) as error:
            raise LogUnreadable(f"{self._log.store.place} at offset {offset}: {error}") from error

    def _batches(self, offset: int) -> "Iterator[_Batch]":
        start = offset
        while offset < self._log.log_end_offset:
            if offset >= self._log.high_watermark and self._log.writable:
                why = f"{self._log.tp}: the batches from offset {offset} on are not durable yet"
                raise LogNotHere(why, self._until_settled)
            result = read_batches(self._log, offset, REPLAY_BYTES, IsolationLevel.READ_UNCOMMITTED, True)
            if result.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                raise LogNotHere(f"{self._log.tp} cannot be read now", _shortage_may_end)
            if result.error is not ErrorCode.NONE:
                raise CorruptBatch(f"the log cannot be read: {result.error.name}")
            if result.missing is not None:
                why = f"{self._log.tp}: the bytes at offset {offset} have not arrived yet"
                raise LogNotHere(why, partial(_arrived, self._log, result.missing))
            data = b"".join(load(part) for part in result.parts)
            before = offset
            for batch in _batches(data, self._log.tp):
                # No checksum covers the offsets. Only the first batch may begin before the log's start.
                if batch.replayed.base_offset < offset > start:
                    raise CorruptBatch(f"a batch of offset {batch.replayed.base_offset} follows")
                offset = max(offset, batch.next_offset)
                yield batch
            if offset == before:
                raise CorruptBatch(f"the log ends there, but should end at {self._log.log_end_offset}")

    async def _until_settled(self) -> None:
        """Return when all appends are durable or rejected: then the log's end is final."""
        try:
            await self.newest.durable()
        except LogWriteFailed as error:
            logger.info("the coordinator reads %s again: %s", self._log.tp, error)


class _Arrival:
    """A watcher that a log wakes when it changes."""

    def __init__(self) -> None:
        self.event = trio.Event()

    def wake(self) -> None:
        self.event.set()


async def _arrived(log: PartitionLog, missing: Missing) -> None:
    """Return when the bytes have arrived, or the log was disowned."""
    arrival = _Arrival()
    log.watchers[arrival] = None
    try:
        while not (missing.arrived or log.disowned):
            await arrival.event.wait()
            arrival.event = trio.Event()
    finally:
        log.watchers.pop(arrival, None)


async def _shortage_may_end() -> None:
    await trio.sleep(SHORTAGE_PAUSE_SECONDS)


class InternalTopicLogs:
    """The partitions of one internal topic as `CoordinatorLogs`; logs are opened on first use."""

    def __init__(
        self,
        topic: str,
        count: int,
        flusher: LogFlusher,
        open_log: Callable[[TopicPartition], PartitionLog],
        existing: Callable[[], Collection[TopicPartition]],
        epoch: Callable[[], int | None] = lambda: None,
    ) -> None:
        """`epoch` returns that of the coordinator of a log opened now; None: the leader epoch of each log."""
        self._epoch = epoch
        self._topic = topic
        self._count = count
        self._flusher = flusher
        self._open_log = open_log
        self._existing = existing
        self._logs: dict[int, PartitionCoordinatorLog] = {}

    @property
    def count(self) -> int:
        return self._count

    def log(self, partition: int) -> CoordinatorLog:
        """The log of `partition`, opened on first use, and again after it was disowned."""
        found = self._logs.get(partition)
        if found is None or found.is_disowned:
            assert 0 <= partition < self._count, f"{self._topic} has no partition {partition}"
            try:
                log = self._open_log(TopicPartition(self._topic, partition))
            except (CorruptLogFile, OSError) as error:
                if is_shortage(error):
                    raise LogNotHere(str(error), _shortage_may_end) from error
                raise LogUnreadable(str(error)) from error
            found = self._logs[partition] = PartitionCoordinatorLog(log, self._flusher, self._epoch())
        return found

    def existing(self) -> Collection[int]:
        return sorted(tp.partition for tp in self._existing() if tp.topic == self._topic)


class _Batch:
    """One batch read back, and the offset of the next one."""

    __slots__ = ("next_offset", "replayed")

    def __init__(self, next_offset: int, replayed: ReplayedBatch) -> None:
        self.next_offset = next_offset
        self.replayed = replayed


def _batches(data: bytes, tp: TopicPartition) -> Iterator[_Batch]:
    """The batches in `data`, verified and decoded; a marker as commit or abort. Raises CorruptBatch."""
    for position, header in iter_headers(data):
        if not check_crc(data, position, header):
            raise CorruptBatch(f"{tp}: the batch at offset {header.base_offset} does not match its CRC-32C")
        commits: bool | None = None
        records: Sequence[KeyValue] = ()
        if header.is_control and not header.record_count:
            pass  # compaction emptied it: its transaction is deleted
        elif header.is_control:
            marker = read_marker(data, position, header)
            commits = marker.type is ControlType.COMMIT
        else:
            records = [(record.key, record.value) for record in decode_records(data, position, header)]
        yield _Batch(
            header.next_offset,
            ReplayedBatch(
                base_offset=header.base_offset,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                transactional=header.is_transactional,
                marker_commits=commits,
                records=records,
                timestamp_ms=header.max_timestamp,
            ),
        )
