"""Finds the reserved space that a crash left after the last batch (`StoredFile.reserve`): a mark, and zeros.

A batch may end in zeros, too, so a walk over the batches must find where the space begins. Only the mark and zeros up
to the end of the file are reserved space. Anything else is damage, which this module does not handle.
"""

from fencepost.broker.log.recovery.scanning import ReadableFile
from fencepost.broker.log.storage.segment import Segment
from fencepost.broker.log.storage.store import END_MARK, CorruptLogFile
from fencepost.protocol.batch_header import HEADER_SIZE, CorruptBatch, check_crc, read_header

_CHUNK_BYTES = 64 << 10
_ZEROS = bytes(_CHUNK_BYTES)


def drop_reserve(segment: Segment) -> int:
    """Truncate the reserved space of a segment's file. Returns its size in bytes. Raises OSError."""
    size = segment.size_bytes
    end = end_of_batches(segment)
    if end is None or end == size:
        return 0
    segment.file.truncate(end)
    return size - end


def end_of_batches(segment: Segment) -> int | None:
    """The end of the last batch, if only reserved space follows; else None. Raises OSError."""
    size = segment.size_bytes
    if size < HEADER_SIZE or not _is_zeros(segment.file.read(size - HEADER_SIZE, HEADER_SIZE)):
        return None
    end = _known_batch(segment, _last_byte(segment))
    try:
        for step in segment.walk(end):
            end = step.position + step.size_bytes
    except CorruptLogFile as error:
        return end if error.position == end and is_room(segment.file, end, size) else None
    return end


def is_room(file: ReadableFile, start: int, stop: int) -> bool:
    """Whether the bytes from `start` to `stop` exist and are only the mark and zeros. Raises OSError."""
    if file.read(start, len(END_MARK)) == END_MARK:
        start += len(END_MARK)
    for position in range(start, stop, _CHUNK_BYTES):
        if not _is_zeros(file.read(position, min(_CHUNK_BYTES, stop - position))):
            return False
    return start < stop


def _last_byte(segment: Segment) -> int:
    """The position of the last byte that is not zero; -1 if all are zero."""
    position = segment.size_bytes
    while position > 0:
        start = max(0, position - _CHUNK_BYTES)
        data = segment.file.read(start, position - start)
        if not _is_zeros(data):
            return start + len(data.rstrip(b"\0")) - 1
        position = start
    return -1


def _is_zeros(data: bytes) -> bool:
    """Whether at most a chunk is all zeros. A comparison is a thousand times faster than a loop over the bytes."""
    return data == _ZEROS[: len(data)]


def _known_batch(segment: Segment, position: int) -> int:
    """The position of a verified batch at or before `position`, from the index; 0 if there is none."""
    for number in range(len(segment.offsets) - 1, -1, -1):
        relative_offset, at = segment.offsets[number]
        if 0 < at <= position:
            return at if _is_batch(segment, at, segment.base_offset + relative_offset) else 0
    return 0


def _is_batch(segment: Segment, position: int, last_offset: int) -> bool:
    try:
        header = read_header(segment.file.read(position, HEADER_SIZE), whole=False)
    except CorruptBatch:
        return False
    data = segment.file.read(position, header.size_bytes)
    return header.last_offset == last_offset and len(data) == header.size_bytes and check_crc(data, 0, header)
