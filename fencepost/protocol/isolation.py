"""Filters a fetch for a read_committed reader: no markers, and no batches of aborted transactions (row I2)."""

import struct
from collections.abc import Iterable

from fencepost.protocol.batch_header import (
    CONTROL_BIT,
    HEADER_SIZE,
    LOG_OVERHEAD,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
)
from fencepost.protocol.control_records import MARKER_SIZE, ControlType, control_type

_USUAL_ATTRIBUTES = CONTROL_BIT | TRANSACTIONAL_BIT
_USUAL_LENGTH = MARKER_SIZE - LOG_OVERHEAD
_MARKER = struct.Struct(">bbbbb hh b hi b")
"""A marker's one record: length, attributes, two deltas, key length; key; value length; value; header count."""
_USUAL_LENGTHS = (2 * (_MARKER.size - 1), 0, 2 * 4, 2 * 6, 0)
"""The record's length, its offset delta, and the lengths of key, value and headers, as one-byte zigzag varints."""


class AbortedFilter:
    """Decides batch by batch, in offset order, whether an application may read the batches of one fetch.

    `aborted` is the fetched partition's list of (producer id, first offset of the aborted transaction), in any order.
    None, the answer to read_uncommitted, excludes only control batches. A filter is for one answer: the next answer has
    its own list, which repeats the transactions that are not finished there.
    """

    def __init__(self, aborted: Iterable[tuple[int, int]] | None) -> None:
        self._to_come = sorted(
            ((first_offset, producer_id) for producer_id, first_offset in aborted or ()), reverse=True
        )
        self._aborted: set[int] = set()

    def admits(self, header: BatchHeader, buffer: Buffer, start: int) -> bool:
        """Whether the application reads the batch at `start` of `buffer`; call it once for every batch.

        Readers continue at `header.next_offset` in both cases. Raises CorruptBatch for a control batch without a type.
        """
        while self._to_come and self._to_come[-1][0] <= header.last_offset:
            self._aborted.add(self._to_come.pop()[1])
        attributes = header.attributes
        if attributes & CONTROL_BIT:
            if header.producer_id in self._aborted and _ends_aborted(header, buffer, start):
                self._aborted.discard(header.producer_id)
            return False
        return not (attributes & TRANSACTIONAL_BIT and header.producer_id in self._aborted)


def _ends_aborted(header: BatchHeader, buffer: Buffer, start: int) -> bool:
    """Whether the control batch is an ABORT marker; one in the usual layout is read without decoding records."""
    if header.batch_length == _USUAL_LENGTH and header.attributes == _USUAL_ATTRIBUTES and header.record_count == 1:
        length, _, time, delta, key, version, kind, value, _, _, headers = _MARKER.unpack_from(
            buffer, start + HEADER_SIZE
        )
        if (length, delta, key, value, headers) == _USUAL_LENGTHS and time >= 0 and version >= 0:
            return bool(kind == ControlType.ABORT)
    return control_type(buffer, start, header) is ControlType.ABORT
