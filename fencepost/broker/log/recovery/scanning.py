"""A segment's batches one after the other, whole, and what they mean for the producers: for recovery and repair."""

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
    """What a scan needs of a file."""

    @property
    def place(self) -> str:
        """The file's name for messages to people."""

    def read(self, position: int, length: int) -> bytes:
        """At most `length` bytes from `position` on. Raises OSError."""


class Batches(Protocol):
    """What a scan needs of a segment."""

    @property
    def file(self) -> ReadableFile:
        """The file of its batches."""

    @property
    def size_bytes(self) -> int:
        """Bytes of batches in it."""


def replay(
    producers: ProducerStates, place: str, position: int, header: BatchHeader, data: memoryview
) -> AbortedTransaction | None:
    """Fold one batch that stands in the log into the producer state: nothing is checked, it was when it was written.

    Returns the transaction that it aborts, if it does. Raises CorruptLogFile for a control batch that cannot be read.
    """
    if not header.is_control:
        producers.replay_data(header)
        return None
    if not header.record_count:
        return None  # compaction emptied it: its transaction is gone
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
    """Every batch from `position` on, whole. Raises CorruptLogFile at the first bytes that cannot be one."""
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
    """The header at `at`; None where the chunk ends within it but the file goes on."""
    if len(chunk) - at < HEADER_SIZE and position + HEADER_SIZE <= segment.size_bytes:
        return None
    try:
        return read_header(chunk, at, whole=False)
    except CorruptBatch as error:
        raise CorruptLogFile(segment.file.place, position, str(error)) from error


def _header_size(segment: "Batches", position: int) -> int:
    return read_header(segment.file.read(position, HEADER_SIZE), whole=False).size_bytes


def _large_batch(segment: "Batches", position: int) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """The one batch at `position` that is larger than a chunk."""
    header = _header_at(segment, position, memoryview(segment.file.read(position, HEADER_SIZE)), 0)
    assert header is not None, "the file reaches at least to the end of the header"
    if position + header.size_bytes > segment.size_bytes:
        raise CorruptLogFile(segment.file.place, position, f"ends within a batch of {header.size_bytes} bytes")
    yield position, header, memoryview(segment.file.read(position, header.size_bytes))


def need_no_batch_after_damage(store: Store) -> None:
    """Raises CorruptLogFile where a whole batch stands behind a bad one: then that is no torn end, but damage.

    For small logs of which recovery must not cut off what may have counted, without a word. Raises OSError.
    """
    damaged: CorruptLogFile | None = None
    for name in sorted(name for name in store.sizes() if name.endswith(".log")):
        loaded = store.load(name) or b""
        # The room that was reserved behind the last batch may follow, also in a file that was closed since.
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
    """The size of the batch that begins there and matches its checksum; 0 where none does."""
    if len(data) - at < HEADER_SIZE or data[at + _MAGIC_AT] != MAGIC:
        return 0
    try:
        header = read_header(data, at)
    except CorruptBatch:
        return 0
    return header.size_bytes if check_crc(data, at, header) else 0
