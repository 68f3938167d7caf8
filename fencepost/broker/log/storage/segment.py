"""One segment of a log: a file of record batches and its three indexes."""

from collections.abc import Iterator
from itertools import islice
from struct import Struct
from typing import NamedTuple

from fencepost.broker.log.config import LogConfig, jitter_ms
from fencepost.broker.log.recovery.seals import SEAL_SUFFIX, Seal, encode_seal
from fencepost.broker.log.storage.indexes import OFFSET_ENTRY, OffsetIndex, TimeIndex
from fencepost.broker.log.storage.store import Bytes, CorruptLogFile, Piece, Store, SyncTask
from fencepost.broker.log.storage.txn_index import TxnIndex
from fencepost.protocol.batch_header import HEADER_SIZE, BatchHeader

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, SEAL_SUFFIX)

NO_TIMESTAMP_MS = -1

_WALK = Struct(">qi11xi8xq")
_WALK_CHUNK_BYTES = 8192
_COPY_BYTES = 1 << 20
_KNOWN_POSITIONS_MAX = 512
_MAX_RELATIVE_OFFSET = 2**31 - 1


def file_name(base_offset: int, suffix: str) -> str:
    """Kafka's name for a file that belongs to `base_offset`: twenty digits and the suffix."""
    return f"{base_offset:020d}{suffix}"


def offset_in_name(name: str, suffix: str) -> int | None:
    """The offset in a file name such as 00000000000000000042.log; None for other names."""
    if not name.endswith(suffix):
        return None
    digits = name[: -len(suffix)]
    return int(digits) if len(digits) == 20 and digits.isascii() and digits.isdigit() else None


class Step(NamedTuple):
    """One batch on a walk over a segment."""

    position: int
    base_offset: int
    last_offset: int
    size_bytes: int
    max_timestamp_ms: int


class Slice(NamedTuple):
    """Whole batches in a segment: their position and size, and the offset after the last batch."""

    position: int
    size_bytes: int
    end_offset: int


class Segment:
    """Batches from `base_offset` up to `next_offset`, appended at the end, read anywhere.

    `ending` follows the names of its files until compaction has swapped it in.
    """

    def __init__(self, store: Store, base_offset: int, created_ms: int = NO_TIMESTAMP_MS, ending: str = "") -> None:
        self.store = store
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.created_ms = created_ms
        self.first_timestamp_ms = NO_TIMESTAMP_MS
        self.names = {suffix: file_name(base_offset, suffix) + ending for suffix in SEGMENT_SUFFIXES}
        """The names of its files by Kafka's suffix, whether or not the files exist."""
        self.file = store.open(self.names[LOG_SUFFIX])
        self.offsets = OffsetIndex(store.open(self.names[INDEX_SUFFIX]))
        self.times = TimeIndex(store.open(self.names[TIME_INDEX_SUFFIX]))
        self.aborted = TxnIndex(store.open(self.names[TXN_INDEX_SUFFIX]))
        self._unindexed_bytes = 0
        self._seal_due = False
        self._positions: dict[int, int] = {}
        timestamp_ms, relative_offset = self.times.last
        self.max_timestamp_ms = timestamp_ms
        self.max_timestamp_offset = base_offset + relative_offset

    @property
    def size_bytes(self) -> int:
        return self.file.size_bytes

    @property
    def last_time_ms(self) -> int:
        """Its largest timestamp; without any, as in Kafka, the time of its file's last write. Raises OSError."""
        return self.max_timestamp_ms if self.max_timestamp_ms >= 0 else self.file.modified_ms()

    def append(self, batch: Bytes, header: BatchHeader, index_interval_bytes: int) -> None:
        """Write one batch at `next_offset`, which its bytes carry (`header` need not).

        Raises OSError; then nothing has changed.
        """
        position = self.file.size_bytes
        self.file.write(position, batch)
        self.note(position, header, self.next_offset, index_interval_bytes)

    def note(self, position: int, header: BatchHeader, base_offset: int, index_interval_bytes: int) -> None:
        """Add the batch at `position`, appended or found by recovery, to the indexes and bounds."""
        last_offset = base_offset + header.last_offset_delta
        max_timestamp_ms = header.max_timestamp
        if max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = max_timestamp_ms
            self.max_timestamp_offset = last_offset
        if self.first_timestamp_ms < 0:
            self.first_timestamp_ms = max_timestamp_ms
        if self._unindexed_bytes > index_interval_bytes:
            self.offsets.add(last_offset - self.base_offset, position)
            self.times.note(self.max_timestamp_ms, self.max_timestamp_offset - self.base_offset)
            self._unindexed_bytes = 0
        self._unindexed_bytes += header.batch_length + 12
        self.next_offset = last_offset + 1
        self._remember(base_offset, position)

    def must_roll(self, size_bytes: int, header: BatchHeader, now_ms: int, config: LogConfig) -> bool:
        """Whether the next batch needs a new segment (row L1): this one or its index is full, or it is too old."""
        have_bytes = self.file.size_bytes
        if not have_bytes:
            return False
        if have_bytes + size_bytes > config.segment_bytes:
            return True
        if self.offsets.size_bytes + OFFSET_ENTRY.size > config.segment_index_bytes:
            return True
        if header.last_offset_delta + self.next_offset - self.base_offset > _MAX_RELATIVE_OFFSET:
            return True
        age_ms_max = config.segment_ms
        if config.segment_jitter_ms:
            age_ms_max -= jitter_ms(f"{self.store.place} {self.base_offset}", config)
        if self.first_timestamp_ms >= 0:
            return header.max_timestamp - self.first_timestamp_ms > age_ms_max
        return self.created_ms >= 0 and now_ms - self.created_ms > age_ms_max

    # Finding batches

    def walk(self, position: int) -> Iterator[Step]:
        """The batches from the one that begins at `position` on. Raises CorruptLogFile and OSError."""
        size = self.file.size_bytes
        while position < size:
            chunk = self.file.read(position, _WALK_CHUNK_BYTES)
            at, start = 0, position
            while at + HEADER_SIZE <= len(chunk):
                base_offset, length, delta, max_timestamp_ms = _WALK.unpack_from(chunk, at)
                batch_bytes = length + 12
                if batch_bytes < HEADER_SIZE or start + at + batch_bytes > size or base_offset < self.base_offset:
                    raise CorruptLogFile(self.file.place, start + at, "no batch begins here")
                yield Step(start + at, base_offset, base_offset + delta, batch_bytes, max_timestamp_ms)
                at += batch_bytes
            if not at:
                raise CorruptLogFile(self.file.place, position, f"ends {len(chunk)} bytes into a batch")
            position = start + at

    def position_of(self, offset: int) -> int:
        """The position of the first batch that reaches `offset`; else the end of the file. Raises as `walk`."""
        if offset >= self.next_offset:
            return self.file.size_bytes
        known = self._positions.get(offset)
        if known is not None:
            return known
        position = self.file.size_bytes
        for step in self.walk(self.offsets.position_before(offset - self.base_offset)):
            if step.last_offset >= offset:
                position = step.position
                break
        self._remember(offset, position)
        return position

    def slice(self, offset: int, upper_offset: int, max_bytes: int, at_least_one: bool) -> Slice:
        """The whole batches from `offset` below `upper_offset` that fit into `max_bytes`.

        `at_least_one` returns the first batch whatever its size. Raises as `walk`.
        """
        start = self.position_of(offset)
        stop = self.position_of(upper_offset)
        end_offset = min(upper_offset, self.next_offset)
        if stop - start <= max_bytes:
            return Slice(start, stop - start, end_offset)
        limit = start + max_bytes
        for step in self.walk(max(start, self.offsets.batch_before(limit))):
            end = step.position + step.size_bytes
            if end > limit:
                if step.position > start:
                    stop, end_offset = step.position, step.base_offset
                elif at_least_one:
                    stop, end_offset = end, step.last_offset + 1
                else:
                    stop, end_offset = start, offset
                break
        self._remember(end_offset, stop)
        return Slice(start, stop - start, end_offset)

    def piece(self, part: Slice) -> Piece:
        """The bytes of `part`. Raises OSError."""
        return self.file.piece(part.position, part.size_bytes)

    def _remember(self, offset: int, position: int) -> None:
        """Cache the position of a batch: readers at the end and sequential readers need these positions next."""
        positions = self._positions
        positions[offset] = position
        if len(positions) > _KNOWN_POSITIONS_MAX:
            self._positions = dict(islice(positions.items(), _KNOWN_POSITIONS_MAX // 2, None))

    # Keeping and dropping

    def seal(self) -> bool:
        """Complete the indexes, as Kafka does when a segment becomes read-only, and write the seal.

        Returns False if the disk is full.
        """
        self.times.note(self.max_timestamp_ms, self.max_timestamp_offset - self.base_offset)
        self._seal_due = bool(self.size_bytes)
        return self.flush_indexes()

    def flush_indexes(self) -> bool:
        """Write waiting index entries to their files. Returns False if the disk fails.

        With a `.timeindex` there is always an `.index`, even an empty one: Kafka's tools open both.
        """
        if not all([self.offsets.flush(), self.times.flush(), self.aborted.flush()]):
            return False
        if self.times.size_bytes:
            try:
                self.offsets.file.create()
            except OSError:
                return False
        if self._seal_due:
            try:
                self.file.trim()
                self._write_seal()
            except OSError:
                return False
            self._seal_due = False
        return True

    def _write_seal(self) -> None:
        """Write the seal in place, within one sector: a replaced file would free a block, which can block the loop."""
        data = encode_seal(self._seal())
        file = self.store.open(self.names[SEAL_SUFFIX])
        try:
            if file.size_bytes > len(data):
                file.truncate(0)
            file.write(0, data)
        finally:
            file.close()

    def _seal(self) -> Seal:
        return Seal(
            self.next_offset,
            self.size_bytes,
            self.max_timestamp_ms,
            self.max_timestamp_offset,
            self.offsets.seal(),
            self.times.seal(),
            self.aborted.seal(),
        )

    def sync_targets(self) -> list[SyncTask]:
        """The tasks that make the batches and the written index entries durable."""
        seal = self.store.open(self.names[SEAL_SUFFIX])
        files = (self.file, self.offsets.file, self.times.file, self.aborted.file, seal)
        sync_targets = [target for target in (file.sync_target() for file in files) if target is not None]
        seal.close()
        return sync_targets

    def rewind(self, position: int, offset: int, replay_from: int) -> None:
        """Before a scan from `position` (the batch of `offset`) on: drop what the scan will add. Raises OSError.

        The scan adds aborted transactions only from `replay_from` on, where it replays the producers' state.
        """
        self.offsets.truncate_to_position(position)
        self.times.truncate_to_offset(max(0, offset - self.base_offset))
        self.aborted.keep_within(self.base_offset, replay_from)
        timestamp_ms, relative_offset = self.times.last
        self.max_timestamp_ms, self.max_timestamp_offset = timestamp_ms, self.base_offset + relative_offset
        self.next_offset = offset
        self._unindexed_bytes = 0
        self._positions.clear()

    def rename(self, suffix: str, ending: str) -> None:
        """Rename the file with this suffix so that it ends in `ending`; open readers continue. Raises OSError.

        A missing file is not an error: a segment without aborts has no `.txnindex`.
        """
        to = file_name(self.base_offset, suffix) + ending
        try:
            self.store.rename(self.names[suffix], to)
        except FileNotFoundError:
            return
        self.names[suffix] = to
        files = {
            LOG_SUFFIX: self.file,
            INDEX_SUFFIX: self.offsets.file,
            TIME_INDEX_SUFFIX: self.times.file,
            TXN_INDEX_SUFFIX: self.aborted.file,
        }
        if suffix in files:
            files[suffix].follow(to)

    def rewrite_tail(self, offset: int) -> None:
        """Write the batches from `offset` on again at their positions, and set the file's size. Raises OSError."""
        position = self.position_of(offset)
        while data := self.file.read(position, _COPY_BYTES):
            self.file.write(position, data)
            position += len(data)
        self.file.truncate(self.size_bytes)  # the failed flush may have lost the truncation of reserved space

    def delete(self) -> None:
        """Delete the segment's files, the data first: the next start deletes indexes without data."""
        self.close()
        for name in self.names.values():
            self.store.remove(name)

    def removals(self) -> list[SyncTask]:
        """Remove the names of its files, the data first. Returns tasks that delete the files. Raises OSError."""
        self.close()
        return self.store.removals(self.names.values())

    def close(self) -> None:
        for file in (self.file, self.offsets.file, self.times.file, self.aborted.file):
            file.close()
