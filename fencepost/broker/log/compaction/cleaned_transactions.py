"""Which batches a compaction may drop because of how their transactions ended (rows L4 and L5, KIP-534)."""

import heapq
from collections.abc import Collection, Iterable, Iterator

from fencepost.broker.log.storage.segment import Segment
from fencepost.broker.log.storage.txn_index import AbortedTransaction
from fencepost.protocol.batch_header import BatchHeader, Buffer
from fencepost.protocol.control_records import ControlType, control_type

_ENTRIES_PER_STEP = 500


class AbortedAhead:
    """The aborted transactions of a log by rising first offset, read from its indexes only as far as needed.

    An index is ordered by the ends of transactions. Transactions that ended after an entry began at or after that
    entry's last stable offset. So an entry whose last stable offset reaches an offset is the last one needed below it.
    """

    def __init__(self, segments: Collection[Segment], from_offset: int) -> None:
        self._entries = self._read(segments, from_offset)
        self._left: set[Segment] = set()
        self._waiting: list[tuple[int, AbortedTransaction]] = []
        self._known_to = -1

    def reach(self, offset: int) -> Iterator[None]:
        """Read all entries that began below `offset`; yields periodically. Raises CorruptLogFile and OSError."""
        count = 0
        while self._known_to < offset:
            entry = next(self._entries, None)
            if entry is None:
                return
            heapq.heappush(self._waiting, (entry.first_offset, entry))
            self._known_to = max(self._known_to, entry.last_stable_offset)
            count += 1
            if not count % _ENTRIES_PER_STEP:
                yield

    def begun(self, last_offset: int) -> Iterator[AbortedTransaction]:
        """The transactions that began at or below `last_offset` and were not returned yet."""
        while self._waiting and self._waiting[0][0] <= last_offset:
            yield heapq.heappop(self._waiting)[1]

    def leave(self, segments: Iterable[Segment]) -> None:
        """Skip the unread index entries of these replaced segments: their transactions ended before the position."""
        self._left.update(segments)

    def _read(self, segments: Collection[Segment], from_offset: int) -> Iterator[AbortedTransaction]:
        for segment in segments:
            if segment in self._left:
                continue
            for entry in segment.aborted.since(from_offset):
                yield entry
                if segment in self._left:
                    break


class CleanedTransactions:
    """The open transactions at the position of a pass, kept from one group of segments to the next (KAFKA-8351).

    Aborted data is removed at once. A marker can be removed if the pass met no batch of its transaction, not even an
    empty one, and no kept producer snapshot has the transaction open: a replay would need the marker.
    """

    def __init__(self, aborted: AbortedAhead) -> None:
        self.aborted = aborted
        self._aborted: dict[int, AbortedTransaction] = {}
        self._met: set[int] = set()

    def open_in_snapshot(self, producer_ids: Iterable[int]) -> None:
        """Record that a snapshot at the current position has open transactions of these producers."""
        self._met.update(producer_ids)

    def data(self, header: BatchHeader) -> bool:
        """Advance over a data batch. Returns whether it belongs to an aborted transaction."""
        self._advance(header)
        if not header.is_transactional:
            return False
        self._met.add(header.producer_id)
        return header.producer_id in self._aborted

    def marker(self, header: BatchHeader, data: Buffer) -> tuple[bool, AbortedTransaction | None]:
        """Advance over a control batch. Returns whether it can be removed, and the index entry to keep with it.

        Raises CorruptBatch.
        """
        self._advance(header)
        if not header.record_count:
            return True, None
        kind = control_type(data, 0, header)
        if kind is not ControlType.ABORT and kind is not ControlType.COMMIT:
            return False, None
        met = header.producer_id in self._met
        self._met.discard(header.producer_id)
        entry = self._aborted.pop(header.producer_id, None) if kind is ControlType.ABORT else None
        return not met, entry if met else None

    def _advance(self, header: BatchHeader) -> None:
        for entry in self.aborted.begun(header.last_offset):
            self._aborted.setdefault(entry.producer_id, entry)
