"""A reader of partition directories of its own: straight from the files' bytes, with none of the broker's code."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import NamedTuple

import crc32c

_HEADER = Struct(">qiibIhiqqqhii")
"""The 61 bytes before a batch's records (section 0, row 4)."""
_CRC_FROM = 21
_LENGTH_FROM = 12
_CONTROL_KEY = Struct(">hh")
_TXN_ENTRY = Struct(">hqqqq")
_SNAPSHOT_HEAD = Struct(">hIi")
_SNAPSHOT_ENTRY = Struct(">qhiqiqiq")
_CODEC_BITS, _TRANSACTIONAL_BIT, _CONTROL_BIT = 0x07, 0x10, 0x20
_END_MARK = bytes(8) + b"\x40" + bytes(8)
ABORT, COMMIT = 0, 1


class Damaged(Exception):
    """Bytes that are not what the format says; the message names file and position."""


class StoredBatch(NamedTuple):
    """One batch as it stands in a file."""

    path: Path
    position: int
    base_offset: int
    last_offset: int
    attributes: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    body: memoryview

    @property
    def size_bytes(self) -> int:
        """Header and records."""
        return _HEADER.size + len(self.body)

    @property
    def is_control(self) -> bool:
        """Whether it holds a marker."""
        return bool(self.attributes & _CONTROL_BIT)

    @property
    def is_transactional(self) -> bool:
        """Whether a marker decides over it."""
        return bool(self.attributes & _TRANSACTIONAL_BIT)

    def records(self) -> Iterator[tuple[int, bytes | None, bytes | None]]:
        """Offset, key and value of each record; only of batches that are not compressed."""
        if self.attributes & _CODEC_BITS:
            raise NotImplementedError(f"{self.path} at {self.position}: this reader does not decompress")
        at = 0
        for _ in range(self.record_count):
            size, at = _varint(self.body, at)
            end = at + size
            _, at = _varint(self.body, at + 1)
            delta, at = _varint(self.body, at)
            key, at = _bytes(self.body, at)
            value, at = _bytes(self.body, at)
            if at > end or end > len(self.body):
                raise Damaged(f"{self.path} at {self.position}: a record is longer than it says")
            yield self.base_offset + delta, key, value
            at = end
        if at != len(self.body):
            raise Damaged(f"{self.path} at {self.position}: {len(self.body) - at} bytes behind the last record")

    def marker(self) -> int:
        """ABORT or COMMIT."""
        ((_, key, _),) = self.records()
        assert key is not None
        return int(_CONTROL_KEY.unpack(key)[1])


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


def _bytes(data: memoryview, at: int) -> tuple[bytes | None, int]:
    size, at = _varint(data, at)
    return (None, at) if size < 0 else (bytes(data[at : at + size]), at + size)


def room_at(data: memoryview, position: int) -> bool:
    """Whether what begins there is room made ahead and never used: a mark that the log ends here, and zeros."""
    if data[position : position + len(_END_MARK)] == _END_MARK:
        position += len(_END_MARK)
    return not any(data[position : position + _HEADER.size]) and not any(data[position:])


def batches_in(path: Path, start: int = 0) -> Iterator[StoredBatch]:
    """The batches of one `.log` file from position `start` on. Raises Damaged where lengths, magic or CRC are wrong."""
    data = memoryview(path.read_bytes())
    position = start
    while position < len(data):
        if room_at(data, position):
            return
        if len(data) - position < _HEADER.size:
            raise Damaged(f"{path} at {position}: {len(data) - position} bytes are no batch")
        base, length, _, magic, crc, attributes, delta, _, max_ms, pid, epoch, sequence, count = _HEADER.unpack_from(
            data, position
        )
        end = position + _LENGTH_FROM + length
        if magic != 2 or length < _HEADER.size - _LENGTH_FROM or end > len(data):
            raise Damaged(f"{path} at {position}: magic {magic}, length {length}, {len(data) - position} bytes left")
        if crc32c.crc32c(data[position + _CRC_FROM : end]) != crc:
            raise Damaged(f"{path} at {position}: offset {base}: wrong CRC")
        body = data[position + _HEADER.size : end]
        yield StoredBatch(path, position, base, base + delta, attributes, max_ms, pid, epoch, sequence, count, body)
        position = end


def segments_of(directory: Path) -> list[Path]:
    """The `.log` files of a partition, by base offset."""
    return sorted(directory.glob("*.log"))


def batches_of(directory: Path, *, gaps: bool = False) -> Iterator[StoredBatch]:
    """All batches of a partition. Raises Damaged where offsets do not go on, within a segment or between two.

    `gaps` allows for what compaction leaves: offsets then only rise.
    """
    expected: int | None = None
    for path in segments_of(directory):
        base = int(path.stem)
        if expected is not None and (base < expected or (base > expected and not gaps)):
            raise Damaged(f"{path}: begins at {base}, the log before it ends at {expected}")
        expected = base
        for batch in batches_in(path):
            if batch.base_offset < expected or (batch.base_offset > expected and not gaps):
                raise Damaged(f"{path} at {batch.position}: offset {batch.base_offset} instead of {expected}")
            expected = batch.last_offset + 1
            yield batch


@dataclass(slots=True)
class StoredLog:
    """What a partition's batches say, taken in one after the other."""

    next_offset: int = 0
    batches: int = 0
    records: int = 0
    """Data records, whatever became of their transactions."""
    committed: list[tuple[int, bytes | None, bytes | None]] = field(default_factory=list)
    """Offset, key and value of what a read_committed reader may see, by offset."""
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    """Producer id, first offset and marker's offset of each aborted transaction, by marker."""
    commits: int = 0
    """Markers that committed something."""
    bare_markers: int = 0
    """Markers that end nothing here."""
    open: dict[int, list[tuple[int, bytes | None, bytes | None]]] = field(default_factory=dict)
    """The undecided records by producer id."""

    @property
    def last_stable_offset(self) -> int:
        """I1, from the batches alone; everything in a file counts as replicated."""
        return min((records[0][0] for records in self.open.values()), default=self.next_offset)

    def take(self, batch: StoredBatch) -> None:
        """Go on with the next batch."""
        self.batches += 1
        self.next_offset = batch.last_offset + 1
        if batch.is_control:
            self._decide(batch)
            return
        records = list(batch.records())
        self.records += len(records)
        if batch.is_transactional:
            self.open.setdefault(batch.producer_id, []).extend(records)
        else:
            self.committed += records

    def _decide(self, batch: StoredBatch) -> None:
        records = self.open.pop(batch.producer_id, None)
        if records is None:
            self.bare_markers += 1
        elif batch.marker() == COMMIT:
            self.commits += 1
            self.committed += records
        else:
            self.aborted.append((batch.producer_id, records[0][0], batch.base_offset))


def read_log(batches: Iterable[StoredBatch]) -> StoredLog:
    """Fold a partition's batches."""
    log = StoredLog()
    for batch in batches:
        log.take(batch)
    log.committed.sort(key=lambda record: record[0])
    return log


class TxnEntry(NamedTuple):
    """One entry of a `.txnindex`."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def txn_entries(directory: Path) -> list[TxnEntry]:
    """All aborted transactions in the partition's `.txnindex` files."""
    data = b"".join(path.read_bytes() for path in sorted(directory.glob("*.txnindex")))
    if len(data) % _TXN_ENTRY.size:
        raise Damaged(f"{directory}: half an entry in a .txnindex")
    return [TxnEntry(*rest) for _, *rest in _TXN_ENTRY.iter_unpack(data)]


class ProducerRow(NamedTuple):
    """One of Kafka's entries in a `.snapshot`."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    last_timestamp_ms: int
    coordinator_epoch: int
    txn_first_offset: int


def snapshot_rows(path: Path) -> list[ProducerRow]:
    """Kafka's entries of a producer snapshot; what stands behind them is left out. Raises Damaged."""
    data = path.read_bytes()
    version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
    if version != 1 or crc32c.crc32c(data[6:]) != crc:
        raise Damaged(f"{path}: version {version} or a wrong CRC")
    start = _SNAPSHOT_HEAD.size
    entries: Sequence[tuple[int, ...]] = list(
        _SNAPSHOT_ENTRY.iter_unpack(data[start : start + count * _SNAPSHOT_ENTRY.size])
    )
    return [ProducerRow(*entry) for entry in entries]
