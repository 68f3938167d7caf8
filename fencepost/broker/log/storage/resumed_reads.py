"""Finds the damaged batches that clients complain about: a client that cannot use a batch stops, and resumes there."""

import logging
from collections.abc import Iterable, Iterator
from typing import TypeVar

from fencepost.broker.log.storage.segment import Segment
from fencepost.broker.log.storage.store import CorruptLogFile, StoredFile
from fencepost.protocol.batch_header import HEADER_SIZE, CorruptBatch, check_crc, read_header

REMEMBERED = 64
"""How many offsets are remembered."""
CHECKED_BYTES = 1 << 20
CHECKED_BATCHES = 256
"""How much of a read is checked, in about a millisecond."""

T = TypeVar("T")

logger = logging.getLogger(__name__)


class ResumedReads:
    """Checks the batches at which consumers of one log begin.

    A read that continues an earlier one is not checked, so consumers that proceed cost nothing more. A batch of this
    run is checked before it is appended: the caller notes only reads of older ones.
    """

    def __init__(self) -> None:
        self._ends: dict[int, None] = {}
        self._checked: dict[int, None] = {}
        self._reported: dict[str, None] = {}

    def note(self, segments: Iterable[Segment], offset: int, end_offset: int) -> None:
        """A read has returned the batches from `offset` to `end_offset` of `segments`, which begin there.

        Damage is logged once. Raises OSError.
        """
        continues = offset in self._ends
        _remember(self._ends, end_offset)
        if continues or offset in self._checked:
            return
        _remember(self._checked, offset)
        damage = _damage_in(_batches(segments, offset, end_offset))
        if damage is not None and damage not in self._reported:
            _remember(self._reported, damage)
            logger.error(
                "%s. Readers get the batch as it is, and those that check it fail; see `fencepost verify`, and restore"
                " the file from a backup",
                damage,
            )


def _remember(known: dict[T, None], one: T) -> None:
    known[one] = None
    if len(known) > REMEMBERED:
        del known[next(iter(known))]


def _damage_in(batches: Iterator[tuple[StoredFile, int, int]]) -> str | None:
    """The first damaged one of these batches; None if there is none, as far as they are checked. Raises OSError."""
    left = CHECKED_BYTES
    try:
        for number, (file, position, size_bytes) in enumerate(batches):
            left -= size_bytes
            if left < 0 or number >= CHECKED_BATCHES:
                return None
            header = read_header(file.read(position, HEADER_SIZE), whole=False)
            if not check_crc(file.read(position, size_bytes), 0, header):
                why = "the batch's CRC-32C does not match its bytes"
                return f"{file.place} is damaged at byte {position}, offset {header.base_offset}: {why}"
    except (CorruptBatch, CorruptLogFile) as error:
        return f"a file is damaged: {error}"
    return None


def _batches(segments: Iterable[Segment], offset: int, end_offset: int) -> Iterator[tuple[StoredFile, int, int]]:
    for segment in segments:
        if segment.base_offset >= end_offset:
            return
        for step in segment.walk(segment.position_of(max(offset, segment.base_offset))):
            if step.base_offset >= end_offset:
                return
            yield segment.file, step.position, step.size_bytes
