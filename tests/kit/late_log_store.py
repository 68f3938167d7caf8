"""A store that binds offsets late, for tests: what a log kept in another process may do to its broker.

`SharedRows` is the database: the rows of one log, in the order of the commits of any number of writers. A `LateLog` is
one broker's view of it. Appends wait in the broker; `commit` is the database's part (it may run in a thread), `deliver`
brings its outcome back to the broker. Bytes may be absent here until `fetch_absent` brings them.
"""

from typing import Any

from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.epochs import LeaderEpochs
from fencepost.broker.log.log_store import Conflict, Extent, FoundTime, LateLog, Missing, RowListener
from fencepost.broker.log.producer_state import ProducerStates
from fencepost.broker.log.recovery.scanning import batches, replay
from fencepost.broker.log.storage.memory import MemoryStore
from fencepost.broker.log.storage.segment_store import SegmentStore
from fencepost.broker.log.storage.segments import Segments
from fencepost.broker.log.storage.store import Bytes, SyncTask
from fencepost.broker.log.storage.txn_index import AbortedTransaction
from fencepost.protocol.batch_header import BatchHeader, assign_offset, read_header


class SharedRows:
    """The rows of one log, durable."""

    def __init__(self, segments: Segments) -> None:
        self.segments = segments

    @property
    def end_offset(self) -> int:
        return self.segments.end_offset

    def write(self, row: Bytes, config: LogConfig) -> None:
        """Append a row where the log ends, whatever offset it carries."""
        data = bytearray(row)
        assign_offset(data, 0, self.end_offset, read_header(data).partition_leader_epoch)
        header = read_header(data)
        if self.segments.must_roll(len(data), header, header.max_timestamp, config):
            self.segments.roll(header.max_timestamp)
        assert self.segments.append(self.end_offset, data, header, config) is None

    def since(self, offset: int) -> list[bytes]:
        """Every row from `offset` on."""
        return [
            bytes(data)
            for segment in self.segments.from_offset(offset)
            for _, header, data in batches(segment, 0)
            if header.base_offset >= offset
        ]

    def note_aborted(self, aborted: AbortedTransaction) -> None:
        """Every broker that folds the marker derives the same entry; it stands in the marker's segment (row I3)."""
        segment = list(self.segments)[self.segments.index_of(aborted.last_offset)]
        if all(entry.last_offset != aborted.last_offset for entry in segment.aborted.all()):
            segment.aborted.append(aborted)


class LateLogView:
    """One broker's view of the rows: a `StoredLog` with `late`."""

    unflushed = False
    closed_since_sync = 0
    has_unsynced_closed = False
    is_deleted = False

    def __init__(self, rows: SharedRows) -> None:
        self.rows = rows
        self.late: LateLog | None = self
        self.written_batches = 0
        self.written_bytes = 0
        self._held = False
        self.refuses_shifts = False
        """Answer every conflict with a refusal, also where the appends could be shifted."""
        self.absent = range(0)
        """Offsets whose bytes are not here."""
        self._config = LogConfig()
        self._waiting: list[tuple[bytes, BatchHeader]] = []
        self._fixed: set[int] = set()
        """Where waiting appends begin that may not be shifted."""
        self._seen = self.end_offset = rows.end_offset
        self._outcome: tuple[int, list[bytes], int] | None = None
        self._listener: RowListener | None = None
        self._wanted: list[Missing] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rows.segments, name)

    def __len__(self) -> int:
        return len(self.rows.segments)

    # Appending

    def must_roll(self, size_bytes: int, header: BatchHeader, now_ms: int, config: LogConfig) -> bool:
        return False

    def stage(self, head: Bytes, batch: Bytes) -> None:
        return None

    def append(self, expected_offset: int, batch: Bytes, header: BatchHeader, config: LogConfig) -> Conflict | None:
        if expected_offset != self.end_offset:
            return Conflict(expected_offset, self.end_offset)
        self._config = config
        self._waiting.append((bytes(batch), header))
        self.end_offset += header.last_offset_delta + 1
        self.written_batches += 1
        self.written_bytes += len(batch)
        return None

    def fix_newest(self) -> None:
        self._fixed.add(read_header(self._waiting[-1][0]).base_offset)

    def hold(self) -> None:
        """Commit nothing until `release`."""
        self._held = True

    def release(self) -> None:
        """Commit again."""
        self._held = False

    def note_aborted(self, aborted: AbortedTransaction) -> None:
        self.rows.note_aborted(aborted)

    # Committing

    def follow(self, listener: RowListener) -> None:
        self._listener = listener

    def sync_targets(self) -> list[SyncTask]:
        return [self] if self._outcome is None else []

    def synced(self) -> None:
        """Nothing: a round knows its outcome itself."""

    def sync(self) -> None:
        """One commit of all that waits: a `SyncTask`."""
        self.commit()

    def commit(self, count: int | None = None) -> None:
        """Commit the first `count` waiting appends, all or none, with the rule of docs/decisions/0051.

        Where other rows came first: if one of them is of a producer of these appends, nothing is written; otherwise the
        appends are written behind them.
        """
        assert self._outcome is None, "one commit at a time"
        if self._held:
            return
        chosen = self._waiting if count is None else self._waiting[:count]
        foreign = self.rows.since(self._seen)
        theirs = {read_header(row).producer_id for row in foreign}
        own = {header.producer_id for _, header in chosen if header.producer_id >= 0}
        fixed = any(read_header(data).base_offset in self._fixed for data, _ in chosen)
        refused = foreign and (self.refuses_shifts or fixed or own & theirs)
        self._outcome = (0 if refused else len(chosen), foreign, self.rows.end_offset)
        for data, _ in () if refused else chosen:
            self.rows.write(data, self._config)

    def deliver(self) -> None:
        """Tell the listener the outcome of the last commit, if there was one."""
        if self._outcome is None:
            return
        (count, foreign, foreign_end), self._outcome = self._outcome, None
        if foreign:
            self._waiting.clear()
            self._fixed.clear()
            self.end_offset = self._seen = foreign_end
            if self._listener is not None:
                self._listener.foreign(foreign)
        if not count:
            return
        bound, self._waiting = self._waiting[:count], self._waiting[count:]
        self._seen += sum(header.last_offset_delta + 1 for _, header in bound)
        committed = self.rows.since(foreign_end)[:count]
        assert [data for data, _ in bound] == committed, "what was shifted still holds"
        if self._listener is not None:
            self._listener.bound(self._seen)

    # Reading

    def read(self, offset: int, upper_offset: int, max_bytes: int, at_least_one: bool) -> Extent:
        extent = self.rows.segments.read(offset, upper_offset, max_bytes, at_least_one)
        if self.absent and offset < self.absent.stop and self.absent.start < extent.end_offset:
            return Extent([], 0, offset, self._miss())
        return extent

    def first_at_or_after(self, timestamp_ms: int, start_offset: int, upper_offset: int) -> FoundTime | Missing | None:
        if self.absent and start_offset < self.absent.stop:
            return self._miss()
        return self.rows.segments.first_at_or_after(timestamp_ms, start_offset, upper_offset)

    def latest(self, start_offset: int, upper_offset: int) -> FoundTime | Missing | None:
        if self.absent and start_offset < self.absent.stop:
            return self._miss()
        return self.rows.segments.latest(start_offset, upper_offset)

    def fetch_absent(self) -> None:
        """Bring what reads missed."""
        self.absent = range(0)
        wanted, self._wanted = self._wanted, []
        for missing in wanted:
            missing.arrived = True
        if self._listener is not None:
            self._listener.arrived()

    def _miss(self) -> Missing:
        missing = Missing()
        self._wanted.append(missing)
        return missing


class OpenedLate:
    """An `OpenedLog`."""

    def __init__(self, segments: LateLogView, producers: ProducerStates, epochs: LeaderEpochs) -> None:
        self.segments = segments
        self.producers = producers
        self.epochs = epochs


class LateLogStore(SegmentStore):
    """A `LogStore` of late logs. Two of them over the same `database` are two brokers."""

    def __init__(self, store: MemoryStore, database: dict[str, SharedRows] | None = None) -> None:
        super().__init__(store)
        self.database: dict[str, SharedRows] = {} if database is None else database

    def open(
        self, name: str, config: LogConfig, log_start_offset: int, trusted_offset: int, topic_id: bytes = b""
    ) -> Any:
        """As `LogStore` says; the producers' state is the fold of all rows."""
        if name not in self.database:
            recovered = super().open(name, config, log_start_offset, trusted_offset)
            self.database[name] = SharedRows(recovered.segments)
            return OpenedLate(LateLogView(self.database[name]), recovered.producers, recovered.epochs)
        rows, producers = self.database[name], ProducerStates()
        for row in rows.since(0):
            replay(producers, name, 0, read_header(row), memoryview(row))
        return OpenedLate(LateLogView(rows), producers, LeaderEpochs.load(self.files(name)))

    def delete(self, name: str, via: str) -> list[SyncTask]:
        self.database.pop(name, None)
        return super().delete(name, via)

    def rename(self, name: str, to: str) -> None:
        self.database.pop(name, None)
        super().rename(name, to)
