"""Iterates over the whole batches of a segment, and replays them into the producers' state, for recovery and repair."""

from collections.abc import Iterator
from typing import Protocol

from fencepost.broker.log.producer_state import ProducerStates
from fencepost.broker.log.storage.store import END_MARK, CorruptLogFile, Store
from fencepost.broker.log.storage.txn_index import AbortedTransaction
from fencepost.protocol.batch_header import HEADER_SIZE, MAGIC, BatchHeader, CorruptBatch, check_crc, read_header
from fencepost.protocol.control_records import ControlType, control_type, read_marker

CHUNK_BYTES = 1 << 20
_MAGIC_AT = 16


class ReadableFile(Protocol):
    """The part of a file that a scan needs."""

    @property
    def place(self) -> str:
        """The file's name for messages."""

    def read(self, position: int, length: int) -> bytes:
        """At most `length` bytes from `position` on. Raises OSError."""


class Batches(Protocol):
    """The part of a segment that a scan needs."""

    @property
    def file(self) -> ReadableFile: ...
    @property
    def size_bytes(self) -> int: ...


def replay(
    producers: ProducerStates, place: str, position: int, header: BatchHeader, data: memoryview
) -> AbortedTransaction | None:
    """Apply one batch of the log to the producer state, without the checks that it passed when it was appended.

    Returns the transaction that it aborts, or None. Raises CorruptLogFile for a control batch that cannot be read.
    """
    if not header.is_control:
        if header.producer_id >= 0:
            producers.replay_data(header)
        return None
    if not header.record_count:
        return None  # compaction emptied it: its transaction is deleted
    try:
        kind = control_type(data, 0, header)
        if kind is not ControlType.ABORT and kind is not ControlType.COMMIT:
            return None
        marker = read_marker(data, 0, header)
    except CorruptBatch as error:
        raise CorruptLogFile(place, position, str(error)) from error
    ended = producers.commit_marker(
        header.producer_id,
        header.producer_epoch,
        marker.type is ControlType.COMMIT,
        marker.coordinator_epoch,
        header.max_timestamp,
        header.base_offset,
    )
    if ended is None or not ended.aborted:
        return None
    return AbortedTransaction(ended.producer_id, ended.first_offset, ended.marker_offset, ended.last_stable_offset)


def batches(
    segment: "Batches", position: int, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Every whole batch from `position` on. Raises CorruptLogFile at the first bytes that are not a batch."""
    size = segment.size_bytes
    while position < size:
        chunk = memoryview(segment.file.read(position, chunk_bytes))
        at = 0
        while at < len(chunk):
            header = _header_at(segment, position + at, chunk, at)
            if header is None or header.size_bytes > len(chunk) - at:
                break
            yield position + at, header, chunk[at : at + header.size_bytes]
            at += header.size_bytes
        if not at:
            yield from _large_batch(segment, position)
            at = _header_size(segment, position)
        position += at


def _header_at(segment: "Batches", position: int, chunk: memoryview, at: int) -> BatchHeader | None:
    """The header at `at`; None if the chunk ends within it but the file continues."""
    if len(chunk) - at < HEADER_SIZE and position + HEADER_SIZE <= segment.size_bytes:
        return None
    try:
        return read_header(chunk, at, whole=False)
    except CorruptBatch as error:
        raise CorruptLogFile(segment.file.place, position, str(error)) from error


def _header_size(segment: "Batches", position: int) -> int:
    return read_header(segment.file.read(position, HEADER_SIZE), whole=False).size_bytes


def _large_batch(segment: "Batches", position: int) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """The batch at `position`, which is larger than a chunk."""
    header = _header_at(segment, position, memoryview(segment.file.read(position, HEADER_SIZE)), 0)
    assert header is not None, "the file reaches at least to the end of the header"
    if position + header.size_bytes > segment.size_bytes:
        raise CorruptLogFile(segment.file.place, position, f"ends within a batch of {header.size_bytes} bytes")
    yield position, header, memoryview(segment.file.read(position, header.size_bytes))


def need_no_batch_after_damage(store: Store) -> None:
    """Raises CorruptLogFile if a whole batch follows a bad one: then the bad one is damage, not a torn end.

    For small logs, where recovery must not silently truncate durable records. Raises OSError.
    """
    damaged: CorruptLogFile | None = None
    for name in sorted(name for name in store.sizes() if name.endswith(".log")):
        loaded = store.load(name) or b""
        # Reserved space may follow the last batch, also in a file that was closed since.
        data, stop = memoryview(loaded), len(loaded.rstrip(b"\0").removesuffix(END_MARK.rstrip(b"\0")))
        at = 0
        while at < stop:
            size = _whole_batch(data, at)
            if size and damaged is not None:
                raise damaged
            if not size and damaged is None:
                damaged = CorruptLogFile(f"{store.place}/{name}", at, "a damaged batch stands before whole ones")
            at += size or 1


def _whole_batch(data: memoryview, at: int) -> int:
    """The size of the batch that begins at `at` with a valid checksum; 0 if there is none."""
    if len(data) - at < HEADER_SIZE or data[at + _MAGIC_AT] != MAGIC:
        return 0
    try:
        header = read_header(data, at)
    except CorruptBatch:
        return 0
    return header.size_bytes if check_crc(data, at, header) else 0
