"""Reads a log's files as they are, without changing them: batches, the ends of transactions, records."""

import mmap
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from fencepost.broker.log.storage.store import END_MARK
from fencepost.protocol.batch_header import HEADER_SIZE, BatchHeader, CorruptBatch, check_crc, read_header
from fencepost.protocol.control_records import ControlType, control_type, read_marker
from fencepost.protocol.records import Record, decode_records

LOG_SUFFIX = ".log"


class Batch(NamedTuple):
    position: int
    header: BatchHeader
    damage: str | None
    """Why its bytes cannot be trusted; None if the checksum matches."""
    control: str | None
    """COMMIT, ABORT or another control record; None for data."""
    coordinator_epoch: int | None
    """Of a marker."""


class Rest(NamedTuple):
    """Bytes at the end of a file that are no batch."""

    position: int
    size_bytes: int
    is_reserved: bool
    """Whether they are space that a broker reserved in the last segment: a mark, and zeros."""
    why: str


class Segment:
    """One `.log` file, mapped into memory. Use it in a `with` block."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._size = path.stat().st_size
        self._file = path.open("rb")
        self._bytes = mmap.mmap(self._file.fileno(), self._size, access=mmap.ACCESS_READ) if self._size else None

    def __enter__(self) -> "Segment":
        return self

    def __exit__(self, *error: object) -> None:
        if self._bytes is not None:
            self._bytes.close()
        self._file.close()

    def headers(self) -> Iterator[tuple[int, BatchHeader]]:
        """The position and the header of each whole batch."""
        position = 0
        while self._bytes is not None and position < self._size:
            try:
                header = read_header(self._bytes[position : position + HEADER_SIZE], 0, whole=False)
            except CorruptBatch:
                return
            if position + header.size_bytes > self._size:
                return
            yield position, header
            position += header.size_bytes

    def batches(self) -> Iterator[Batch | Rest]:
        """All batches, checked; last what follows them, if anything does."""
        position = 0
        for position, header in self.headers():
            yield self._batch(position, header)
            position += header.size_bytes
        if position < self._size:
            yield self._rest(position)

    def _batch(self, position: int, header: BatchHeader) -> Batch:
        data = self._data(position, header)
        if not check_crc(data, 0, header):
            return Batch(position, header, "the CRC does not match", None, None)
        if not header.is_control:
            return Batch(position, header, None, None, None)
        try:
            if not header.record_count:
                return Batch(position, header, None, "control", None)  # compaction emptied it
            kind = control_type(data, 0, header)
            if kind in (ControlType.COMMIT, ControlType.ABORT):
                return Batch(position, header, None, kind.name, read_marker(data, 0, header).coordinator_epoch)
        except CorruptBatch as error:
            return Batch(position, header, str(error), None, None)
        return Batch(position, header, None, "control" if kind is None else kind.name, None)

    def records(self, batch: Batch) -> list[Record]:
        """The records of a batch of data. Raises CorruptBatch."""
        return decode_records(self._data(batch.position, batch.header), 0, batch.header)

    def _data(self, position: int, header: BatchHeader) -> bytes:
        assert self._bytes is not None
        return self._bytes[position : position + header.size_bytes]

    def _rest(self, position: int) -> Rest:
        assert self._bytes is not None
        rest = self._bytes[position:]
        try:
            header = read_header(rest, 0, whole=False)
            why = f"a batch of {header.size_bytes} bytes begins, and the file ends before"
        except CorruptBatch as error:
            why = str(error)
        return Rest(position, len(rest), not rest.removeprefix(END_MARK).strip(b"\0"), why)


class Ends:
    """The markers of each producer in a log: by them, each batch of a transaction is committed, aborted or open."""

    def __init__(self) -> None:
        self._offsets: defaultdict[int, list[int]] = defaultdict(list)
        self._names: defaultdict[int, list[str]] = defaultdict(list)

    def read(self, segments: Iterable[Path]) -> None:
        """Find the markers of these segments, in order. Raises OSError."""
        for path in segments:
            with Segment(path) as segment:
                for position, header in segment.headers():
                    if header.is_control and header.producer_id >= 0 and header.record_count:
                        name = segment._batch(position, header).control
                        if name in ("COMMIT", "ABORT"):
                            self._offsets[header.producer_id].append(header.base_offset)
                            self._names[header.producer_id].append(name)

    def of(self, header: BatchHeader) -> str | None:
        """`committed`, `aborted` or `open`; None for a batch that is not in a transaction."""
        if not header.is_transactional or header.is_control:
            return None
        offsets = self._offsets[header.producer_id]
        at = bisect_right(offsets, header.last_offset)
        if at == len(offsets):
            return "open"
        return "committed" if self._names[header.producer_id][at] == "COMMIT" else "aborted"


def segments_of(directory: Path) -> list[Path]:
    """The `.log` files of a partition's directory, in the order of their offsets."""
    return sorted(path for path in directory.iterdir() if path.suffix == LOG_SUFFIX and path.stem.isdigit())
