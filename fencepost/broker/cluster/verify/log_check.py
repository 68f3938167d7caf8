"""Checks the rows of one log: against their bytes, one another, and the snapshot of the producers. Pure."""

from collections.abc import Collection, Sequence

from fencepost.broker.cluster.engine import Head, Row, RowKind, Snapshot
from fencepost.broker.cluster.reading.stamping import Stamped, stamp
from fencepost.broker.cluster.verify.row_checks import before_row, bounds_differences, row_differences, size_difference
from fencepost.broker.log.producer_entries import ProducerEntry
from fencepost.broker.log.producer_state import ProducerStates
from fencepost.broker.log.recovery.scanning import replay
from fencepost.broker.log.recovery.snapshots import decode_snapshot
from fencepost.broker.log.storage.store import CorruptLogFile
from fencepost.broker.log.storage.txn_index import TXN_ENTRY, AbortedTransaction
from fencepost.broker.log.verify.report import Finding, Level, PartitionFacts
from fencepost.protocol.batch_header import BatchHeader, UnreadableBatch, read_header
from fencepost.protocol.record_check import RecordRules, check_records
from fencepost.protocol.records import unpack_records

RESTORE = "Acknowledged records are damaged: restore the database and the objects from a backup"
REBUILD = "The records are complete, but a broker may decide wrongly about producers: restore the database"


class LogCheck:
    """One walk over a log, row by row."""

    def __init__(self, head: Head, snapshots: Collection[Snapshot], shallow: bool) -> None:
        self.findings: list[Finding] = []
        self.batches = 0
        self.records = 0
        self.size_bytes = 0
        self._head = head
        self._shallow = shallow
        self._end: int | None = None
        self._row_bytes = 0
        self._producers = ProducerStates()
        self._whole = head.start == 0
        """Whether the producers' state is that of all records so far."""
        self._snapshot = next(iter(snapshots), None)
        self._compared = self._snapshot is None

    def take(self, row: Row, data: bytes | CorruptLogFile, label: str) -> None:
        self._follow(row, label)
        self._row_bytes += row.placement.size_bytes
        if isinstance(data, CorruptLogFile):
            self._damage(label, data.position, row.base, data.why)
            self._whole = False
            return
        content = bytearray(data)
        try:
            stamped = stamp(row, content, label)
        except CorruptLogFile as error:
            self._damage(label, error.position, row.base, error.why)
            self._whole = False
            return
        headers = [read_header(content, position) for position, _, _ in stamped]
        self.batches += len(headers)
        self.records += sum(header.record_count for header in headers)
        self.size_bytes += len(content)
        if row.kind is RowKind.SEGMENT and sum(header.record_count for header in headers) != row.count:
            self._whole = False  # compaction removed records
        self._check_columns(row, headers, stamped, content, label)
        aborted = self._replay(row, headers, stamped, content, label)
        self._check_aborted(row, aborted, label)

    def finish(self) -> None:
        """Check the bounds of the log."""
        head = self._head
        end = head.start if self._end is None else self._end
        for offset, what in bounds_differences(head, self._end):
            self._damage(head.name, None, offset, what)
        difference = size_difference(head, self._row_bytes)
        if difference is not None:
            self._add(
                Level.WARNING, head.name, None, None, difference, "Retention by size deletes too early or too late"
            )
        self._reach(end)
        if not self._compared:
            assert self._snapshot is not None
            what = f"the snapshot of its producers is at offset {self._snapshot.base}, behind its end"
            self._damage(head.name, None, self._snapshot.base, what, REBUILD)

    def facts(self) -> PartitionFacts:
        """The bounds, computed from the batches."""
        head = self._head
        undecided = self._producers.first_undecided_offset()
        stable = head.next if undecided is None else max(undecided, head.start)
        count = sum(1 for _ in self._producers.open_transactions())
        return PartitionFacts(head.name, head.start, head.next, stable, count)

    def _follow(self, row: Row, label: str) -> None:
        wrong = before_row(self._head, self._end, row)
        if wrong is not None:
            self._damage(label, None, *wrong)
        if self._end is None:
            self._whole = row.base == 0
        self._reach(row.base)
        self._end = row.end

    def _check_columns(
        self, row: Row, headers: Sequence[BatchHeader], stamped: Stamped, content: bytearray, label: str
    ) -> None:
        batches = [(position, header) for (position, _, _), header in zip(stamped, headers, strict=True)]
        folded_to = self._snapshot.base if self._snapshot is not None else 0
        for what in row_differences(row, batches, content, folded_to):
            self._damage(label, row.placement.position, row.base, what, REBUILD)

    def _replay(
        self, row: Row, headers: Sequence[BatchHeader], stamped: Stamped, content: bytearray, label: str
    ) -> list[AbortedTransaction] | None:
        """The transactions that the row's markers abort; None if that is unknown."""
        aborted = []
        start = row.placement.position
        for (position, _, _), header in zip(stamped, headers, strict=True):
            batch = memoryview(content)[position : position + header.size_bytes]
            if not self._shallow:
                self._check_records(header, batch, start + position, label)
            if header.producer_id < 0:
                continue
            try:
                ended = replay(self._producers, label, start + position, header, batch)
            except CorruptLogFile as error:
                self._damage(label, error.position, header.base_offset, error.why)
                self._whole = False
                continue
            if ended is not None:
                aborted.append(ended)
        return aborted if self._whole else None

    def _check_records(self, header: BatchHeader, batch: memoryview, position: int, label: str) -> None:
        try:
            check_records(unpack_records(batch, 0, header), header, RecordRules(), 0)
        except UnreadableBatch as error:
            what = f"the records cannot be read: {error}"
            meaning = "The checksum matches, so the producer sent it like this; readers fail or skip the batch"
            self._add(Level.WARNING, label, position, header.base_offset, what, meaning)

    def _check_aborted(self, row: Row, aborted: list[AbortedTransaction] | None, label: str) -> None:
        """A row without heads names the transactions that end in it."""
        if row.heads is not None or aborted is None:
            return
        named = [AbortedTransaction(*fields[1:]) for fields in TXN_ENTRY.iter_unpack(row.aborted)]
        if named != aborted:
            what = f"the row names {len(named)} aborted transactions, its markers abort {len(aborted)}, or others"
            meaning = "Readers of committed records may see aborted ones: restore the database"
            self._damage(label, row.placement.position, row.base, what, meaning)

    def _reach(self, offset: int) -> None:
        """Compare the snapshot, if it stands for the rows below this offset."""
        snapshot = self._snapshot
        if self._compared or snapshot is None or snapshot.base > offset:
            return
        self._compared = True
        if snapshot.base < offset and self._end is not None:
            what = f"the snapshot of its producers is at offset {snapshot.base}, where no row ends"
            self._damage(self._head.name, None, snapshot.base, what, REBUILD)
            return
        place = f"the snapshot of the producers of {self._head.name}"
        try:
            entries = decode_snapshot(snapshot.value, place)
        except CorruptLogFile as error:
            self._damage(place, error.position, snapshot.base, error.why, REBUILD)
            return
        if not self._whole:
            # Records before the log's start are gone: what they left in the producers' state is in the snapshot alone.
            self._producers = ProducerStates(entries)
            self._whole = True
            return
        expected = {entry.producer_id: _essence(entry) for entry in self._producers.entries()}
        for entry in entries:
            if expected.get(entry.producer_id) != _essence(entry):
                what = f"it has producer {entry.producer_id} with {_essence(entry)}"
                had = expected.get(entry.producer_id)
                self._damage(place, None, snapshot.base, f"{what}, the records with {had}", REBUILD)
        lost = {entry.producer_id for entry in self._producers.entries() if entry.txn_first_offset >= 0}
        for producer_id in sorted(lost - {entry.producer_id for entry in entries}):
            what = f"it lacks producer {producer_id}, which has an open transaction"
            self._damage(place, None, snapshot.base, what, REBUILD)

    def _damage(self, label: str, position: int | None, offset: int | None, what: str, meaning: str = RESTORE) -> None:
        self._add(Level.DAMAGE, label, position, offset, what, meaning)

    def _add(self, level: Level, label: str, position: int | None, offset: int | None, what: str, meaning: str) -> None:
        self.findings.append(Finding(level, label, position, offset, what, meaning))


def _essence(entry: ProducerEntry) -> tuple[int, int, int, int]:
    """Epoch, first offset of the open transaction, last sequence and last offset."""
    last = entry.batches[-1] if entry.batches else None
    return (
        entry.epoch,
        entry.txn_first_offset,
        -1 if last is None else last.last_sequence,
        -1 if last is None else last.last_offset,
    )
