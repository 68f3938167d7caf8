"""One partition's log: valid appends, and the bounds of reads (sections A.1, A.3 and A.4 of the rules)."""

import errno
import logging
from collections.abc import Callable, Collection

from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.durability.checkpoint_pace import CheckpointPace
from fencepost.broker.log.durability.upkeep import sync_all
from fencepost.broker.log.late_appends import LateAppends
from fencepost.broker.log.log_store import Conflict, OpenedLog
from fencepost.broker.log.producer_entries import BatchMetadata, ProducerEntry
from fencepost.broker.log.producer_state import AppendOrigin, Refusal, VerificationGuard
from fencepost.broker.log.recovery.opening import ALL_TRUSTED
from fencepost.broker.log.recovery.snapshot_files import SnapshotFiles
from fencepost.broker.log.results import LogFollower, Ticket, Watcher
from fencepost.broker.log.storage.checkpoints import PARTITION_METADATA, encode_partition_metadata
from fencepost.broker.log.storage.store import Store, SyncTask
from fencepost.broker.log.storage.txn_index import AbortedTransaction
from fencepost.broker.log.validation import Accepted, check_batch, check_own
from fencepost.protocol.batch_header import BatchHeader, assign_offset
from fencepost.protocol.control_records import same_marker
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition

__all__ = ["AppendOrigin", "PartitionLog"]

RESERVE_BYTES = 256 << 10
"""How many bytes a file reserves ahead of small flushes."""
FLUSH_BYTES = 16 << 20
"""After this many unflushed bytes a flush begins, even if no ticket waits: small flushes block no writer for long."""

logger = logging.getLogger(__name__)


class PartitionLog:
    """A log of record batches with its producers, transactions and bounds. Made by `LogManager`.

    Nothing here waits: an append returns a `Ticket` at once, and `LogFlusher` makes it durable. The functions of
    `reading` read the log, those of `trimming` delete its oldest segments.
    """

    def __init__(
        self,
        tp: TopicPartition,
        topic_id: bytes,
        config: LogConfig,
        store: Store,
        opened: OpenedLog,
        *,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        durable_at_once: bool = False,
        log_start_files: Callable[[], list[SyncTask]] | None = None,
        later: Callable[[Collection[SyncTask]], None] | None = None,
        write_failed: Callable[[OSError], None] = lambda error: None,
    ) -> None:
        self.tp = tp
        self.topic_id = topic_id
        self.config = config
        self.store = store
        self.segments = opened.segments
        self.producers = opened.producers
        self.epochs = opened.epochs
        self.leader_epoch = max(0, self.epochs.latest)
        self.log_start_offset = max(log_start_offset, self.segments.first_offset)
        self.high_watermark = self.segments.end_offset
        """Readers see the records below it: with `durability=fsync` the durable ones, with `durability=os` all."""
        self.watchers: dict[Watcher, None] = {}
        """Woken whenever the high watermark or the LSO moves, when missed bytes arrive, and on `disown`."""
        self.disowned = False
        """The partition was deleted, or another broker leads it: appends and reads fail."""
        self.disowned_error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        """The error for readers of a disowned log."""
        self.commits_remotely = self.segments.late is not None
        """Whether an append's result and offsets are final only when its ticket is settled."""
        self.recovery_point = min(recovery_point, self.segments.end_offset)
        """Every batch below it is durable."""
        self.offline = False
        """A flush failed: appends fail, reads still work up to the high watermark."""
        self.failed_upkeep: dict[str, str] = {}
        """The work on this log whose last run failed, and why (`UpkeepFailures`)."""
        self.flush_at_bytes = 0
        """The value of `segments.written_bytes` at which the next flush is due."""
        self._flushing_bytes = self._flushed_bytes = self.segments.written_bytes
        self.writable = True
        """Whether the log accepts appends, flushes and upkeep: it is neither offline nor disowned."""
        self._refusal: Refusal | None = None
        """Why it accepts none."""
        self._durable_at_once = durable_at_once
        self.log_start_files = log_start_files or list
        """Returns tasks that write the log start offsets when synced."""
        self.later = later or sync_all
        """Accepts tasks for a background thread."""
        self._write_failed = write_failed
        self._founded = bool(self.segments.size_bytes) and store.load(PARTITION_METADATA) is not None
        self.snapshots = SnapshotFiles(store)
        self.follower: LogFollower | None = None
        self.pace = CheckpointPace(self.segments, lazy=durable_at_once)
        self._late = LateAppends(self, self.segments.late) if self.segments.late is not None else None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.tp} [{self.log_start_offset}, {self.log_end_offset})>"

    # Bounds

    @property
    def log_end_offset(self) -> int:
        return self.segments.end_offset

    @property
    def last_stable_offset(self) -> int:
        """Readers of committed data see the records below it. Computed from the producers' state (row I1)."""
        unstable = self.producers.first_unstable_offset(self.high_watermark)
        if unstable is None or unstable >= self.high_watermark:
            return self.high_watermark
        return max(unstable, self.log_start_offset)

    def raise_log_start(self, offset: int) -> None:
        self.log_start_offset = max(self.log_start_offset, offset)

    def advance_high_watermark(self, offset: int) -> None:
        """Let readers see the records below `offset`; never moves back. The LSO moves only when this does."""
        if offset <= self.high_watermark:
            return
        assert offset <= self.segments.end_offset, "LSO <= high watermark <= log end offset"
        self.high_watermark = offset
        self.producers.settle(offset)
        if self.watchers:
            self.wake()

    def wake(self) -> None:
        """Wake all watchers: bounds moved, bytes arrived, or the log was disowned."""
        for watcher in tuple(self.watchers):
            watcher.wake()

    # Appending

    def append(
        self,
        batch: bytes | bytearray | memoryview,
        origin: AppendOrigin,
        now_ms: int,
        *,
        transaction_version: int = 0,
        guard: VerificationGuard | None = None,
        header: BatchHeader | None = None,
        checked: Accepted | Refusal | None = None,
        expected_offset: int | None = None,
    ) -> Ticket:
        """Append one whole batch (rows P2 to P5, L7 to L9); a writable `batch` is changed in place.

        With `expected_offset` the append succeeds only at that offset: NOT_LEADER_OR_FOLLOWER if another writer was
        first. `guard` is the result of `verify` before the coordinator verified the transaction. `header` belongs to a
        batch that this broker built: its bytes are not validated, nor are those that `check_batch` has `checked`.
        """
        config = self.config
        verdict = checked or (
            check_own(batch, header, config, now_ms) if header else check_batch(batch, config, origin, now_ms)
        )
        if isinstance(verdict, Refusal):
            return self._refused(verdict)
        if self._late is not None and expected_offset in (None, self.log_end_offset):
            return self._late.append(verdict, origin, transaction_version, guard, fixed=expected_offset is not None)
        data, header, append_time_ms = verdict
        entry = None
        base_offset = self.segments.end_offset if expected_offset is None else expected_offset
        if header.producer_id >= 0:
            admitted = self.producers.admit(header, base_offset, origin, transaction_version, guard)
            if not isinstance(admitted, ProducerEntry):
                return self._refused(admitted) if isinstance(admitted, Refusal) else self._duplicate(admitted)
            entry = admitted
        refusal = self.write_row(base_offset, data, header, now_ms)
        if refusal is not None:
            return self._refused(refusal)
        if entry is not None:
            self.producers.commit_data(entry)
        end_offset = base_offset + header.last_offset_delta + 1
        if self._durable_at_once:
            self.advance_high_watermark(end_offset)
        return Ticket(self, end_offset, base_offset, append_time_ms)

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        coordinator_epoch: int,
        transaction_version: int,
        now_ms: int,
    ) -> Ticket:
        """End the producer's transaction here (rows T8, T9, T16, T25); without one the marker only stores the epoch."""
        refusal = self.producers.check_marker(producer_id, producer_epoch, coordinator_epoch, transaction_version)
        if refusal is not None:
            return self._refused(refusal)
        marker, header = same_marker(producer_id, producer_epoch, commit, coordinator_epoch, now_ms)
        if self._late is not None:
            return self._late.append_marker(marker, header, commit, coordinator_epoch, transaction_version)
        offset = self.segments.end_offset
        refusal = self.write_row(offset, bytearray(marker), header, now_ms)
        if refusal is not None:
            return self._refused(refusal)
        ended = self.producers.commit_marker(
            producer_id, producer_epoch, commit, coordinator_epoch, now_ms, offset, transaction_version
        )
        if ended is not None and ended.aborted:
            self.segments.note_aborted(
                AbortedTransaction(producer_id, ended.first_offset, offset, ended.last_stable_offset)
            )
        if self._durable_at_once:
            self.advance_high_watermark(offset + 1)
        return Ticket(self, offset + 1, offset)

    def verify(
        self, producer_id: int, producer_epoch: int, base_sequence: int, transaction_version: int
    ) -> VerificationGuard | None:
        """The guard for `append`; call it before the coordinator verifies a transaction that is not open here.

        None if the transaction is open in this epoch: it needs no verification (rows T15, T16).
        """
        return self.producers.guard(producer_id, producer_epoch, base_sequence, transaction_version)

    def write_row(
        self, base_offset: int, data: bytearray | memoryview, header: BatchHeader, now_ms: int
    ) -> Refusal | None:
        """Pass an accepted batch to the store. Returns the refusal if that fails."""
        if self._refusal is not None:
            return self._refusal
        segments = self.segments
        try:
            if not self._founded:
                self._found()
            if self._late is None and self.epochs.latest != self.leader_epoch:
                self.epochs.begin(self.leader_epoch, base_offset)
            if segments.must_roll(len(data), header, now_ms, self.config):
                self._roll(now_ms)
            assign_offset(data, 0, base_offset, self.leader_epoch)
            conflict = segments.append(base_offset, data, header, self.config)
        except OSError as error:
            logger.error("append to %s failed: %s", self.tp, error)
            self._write_failed(error)
            return Refusal(ErrorCode.KAFKA_STORAGE_ERROR, f"the broker could not write: {error.strerror}")
        return None if conflict is None else self._superseded(conflict)

    def _superseded(self, conflict: Conflict) -> Refusal:
        """Another broker wrote to this log: the producers' state here is incomplete."""
        logger.error("append to %s at %d: it goes to %d, another writer was here", self.tp, *conflict)
        return Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.tp} is written by another broker")

    def _found(self) -> None:
        """Create the partition's directory and its topic id file, before its first batch. Raises OSError."""
        self.store.replace(PARTITION_METADATA, encode_partition_metadata(self.topic_id), whole=True)
        self._founded = True

    def _roll(self, now_ms: int) -> None:
        """Begin a new segment, with a producer snapshot at its base offset (section 0, row 19)."""
        self.segments.roll(now_ms)
        self.flush_at_bytes = 0
        self.producers.shrink(self.config.producer_ids_max)
        self.later(self.take_snapshot())

    def _refused(self, refusal: Refusal) -> Ticket:
        code, message, record_errors = refusal
        return Ticket(self, 0, error=code, message=message, record_errors=record_errors)

    def _duplicate(self, batch: BatchMetadata) -> Ticket:
        append_time_ms = batch.timestamp_ms if self.config.stamps_append_time else -1
        return Ticket(self, batch.last_offset + 1, batch.first_offset, append_time_ms, duplicate=True)

    def newest_ticket(self) -> Ticket:
        """A ticket that settles when all appends so far have settled."""
        newest = None if self._late is None else self._late.newest_ticket()
        return newest or Ticket(self, self.log_end_offset)

    # Producers and transactions

    def forget_producers(self, now_ms: int) -> None:
        """Drop idle producers, and those idle longest if there are too many (row P10)."""
        self.producers.expire(now_ms, self.config.producer_id_expiration_ms)
        self.producers.shrink(self.config.producer_ids_max)
        if self._late is not None:
            self._late.forget()

    # Durability

    def begin_sync(self, reserve: bool = False) -> tuple[int, list[SyncTask]]:
        """The end offset, and the tasks that make everything below it durable when synced, from any thread.

        With `reserve`, before a small flush the file reserves space for the next ones, because a flush is much cheaper
        if the size of the file stays. Raises OSError if a file cannot be opened.
        """
        if reserve and 0 < self.unflushed_bytes <= RESERVE_BYTES:
            self.segments.reserve(RESERVE_BYTES)
        self._flushing_bytes = self.segments.written_bytes
        self.flush_at_bytes = self._flushing_bytes + FLUSH_BYTES
        return self.segments.end_offset, [] if self.disowned else self.segments.sync_targets()

    def finish_sync(self, end_offset: int) -> None:
        """Record that the tasks that `begin_sync` returned with `end_offset` are synced."""
        self._flushed_bytes = self._flushing_bytes
        if self.segments.late is not None:
            self.segments.late.deliver()
            return
        self.segments.synced()
        if not self.segments.unflushed:
            self.recovery_point = max(self.recovery_point, end_offset)
        self.advance_high_watermark(end_offset)

    @property
    def unflushed_bytes(self) -> int:
        return self.segments.written_bytes - self._flushed_bytes

    def begin_writeback(self, max_bytes: int) -> tuple[int, list[SyncTask]]:
        """At most `max_bytes` unflushed bytes: their number, and tasks that write them to the disk. Raises OSError.

        That makes nothing durable, but reduces the kernel's dirty pages; call `finish_writeback` afterwards.
        """
        size_bytes, sync_targets = self.segments.writeback(max_bytes)
        # Fewer bytes than requested are all: bytes that compaction or retention removed need no writeback.
        return (size_bytes if size_bytes >= max_bytes else self.unflushed_bytes), sync_targets

    def finish_writeback(self, size_bytes: int) -> None:
        """Record that the tasks that `begin_writeback` returned with this size are done."""
        self._flushed_bytes = min(self._flushed_bytes + size_bytes, self.segments.written_bytes)

    def take_offline(self, why: OSError) -> None:
        """A flush failed, and the content of the disk is unknown: reject appends, keep the bounds.

        Reads still work up to the high watermark. The recovery point stays, and `close` writes no snapshot and no
        clean-shutdown file, so the next start checks the log from the recovery point.
        """
        self.offline, self.writable = True, False
        self.flush_at_bytes = ALL_TRUSTED
        self._refusal = Refusal(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.tp} is offline: {why.strerror}")

    # Upkeep

    def roll(self, now_ms: int) -> None:
        """Close the active segment, which must not be empty, so that it can be compacted in time. Raises OSError."""
        self._roll(now_ms)
        self.segments.create()

    def checkpoint(self) -> list[SyncTask] | None:
        """Write index entries and a producer snapshot, so that the next recovery can start at the current end.

        The caller must sync the returned tasks before it raises the recovery point, because recovery trusts the aborted
        index below a snapshot below the recovery point. None if the disk is full. Raises OSError.
        """
        sync_targets = self.segments.seal_targets()
        if sync_targets is None:
            return None
        late = self.take_snapshot()
        return [*late, *self.snapshots.sync_targets(self.log_end_offset), *sync_targets, *self.store.entry_targets()]

    def drop_passed_snapshots(self, offset: int) -> list[SyncTask]:
        """Drop the snapshots below the checkpoint at `offset`, where recovery starts; those at segment bases stay.

        That is as in Kafka. Returns tasks that delete the files when synced.
        """
        bases = {0, *(fact.next_offset for fact in self.segments.facts())}
        return self.snapshots.keep_below(offset, bases | {self.segments.first_offset})

    def close(self) -> None:
        """Checkpoint, make everything durable, close the descriptors. Raises OSError."""
        if self.disowned:
            return
        if self._founded and not self.offline:
            end_offset, sync_targets = self.begin_sync()
            if not self.segments.flush_indexes():
                raise OSError(errno.ENOSPC, "index entries could not be written", self.store.place)
            for target in [*(self.checkpoint() or ()), *sync_targets]:
                target.sync()
            self.finish_sync(end_offset)
        self.segments.close()

    def freeze(self, refusal: Refusal | None) -> None:
        """Accept no more appends: the log is about to be closed. None: accept them again."""
        self._refusal = refusal

    def disown(self, why: str, error: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        """Give the log up: the partition was deleted, or another broker leads it.

        Appends fail with NOT_LEADER_OR_FOLLOWER, unsettled tickets fail, parked fetches wake and get `error`.
        """
        self.disowned, self.disowned_error, self.writable = True, error, False
        self._refusal = Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, why)
        if self._late is not None:
            self._late.refuse_all(self._refusal)
        if self.follower is not None:
            self.follower.disowned()
        self.snapshots.give_up()
        self.segments.close()
        self.wake()

    def take_snapshot(self) -> list[SyncTask]:
        """Write a producer snapshot at the log's end. Returns the tasks that are left for a thread. Raises OSError."""
        return self.snapshots.write(self.log_end_offset, self.producers.entries())
