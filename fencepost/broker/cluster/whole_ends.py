"""The ends of several logs between which each committed transaction is whole.

An open transaction hides the committed ones behind it in its own logs. In the other logs of such a transaction, nothing
may be open. A reader that ends each log at its last stable offset would get a part of it. So those logs end before it,
too; this may hide further transactions, until nothing changes.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from fencepost.broker.cluster.engine import Row
from fencepost.broker.cluster.folding import Index
from fencepost.protocol.batch_header import BatchHeader
from fencepost.protocol.control_records import ControlType, control_type


class Commit(NamedTuple):
    """What a committed transaction has in common in all its logs: the fields of its markers.

    A coordinator writes all markers of a decision with one timestamp. Markers that it had to repeat have a later one;
    then they do not match, and the transaction may be cut.
    """

    producer_id: int
    producer_epoch: int
    timestamp_ms: int


Batches = list[tuple[BatchHeader, bool]]
"""The headers of a row's batches by rising offset; whether it is a marker that commits."""


class _Log:
    def __init__(self, index: Index, end: int, batches_of: Callable[[int, Row], Batches]) -> None:
        self._index = index
        self.end = end
        self._searched_from = index.head.next
        self._batches_of = batches_of

    def newly_hidden(self) -> Iterator[Commit]:
        """The transactions that `end` hides, without those of earlier calls."""
        start, stop, self._searched_from = self.end, self._searched_from, self.end
        for row in self._index.rows:
            if row.end > start and row.base < stop:
                for header, commits in self._batches_of(self._index.head.log, row):
                    if commits and start <= header.base_offset < stop:
                        yield _commit(header)

    def lower(self, hidden: Collection[Commit]) -> bool:
        """End before these transactions. Returns whether that changed the end."""
        oldest: dict[int, Commit] = {}
        for commit in hidden:
            oldest[commit.producer_id] = min(oldest.get(commit.producer_id, commit), commit)
        first, inside = self.end, set[int]()
        for row in reversed(self._index.rows):
            if not oldest:
                break
            if row.base >= self.end or oldest.keys().isdisjoint(row.producer_ids):
                continue
            for header, _ in reversed(self._batches_of(self._index.head.log, row)):
                producer = header.producer_id
                if header.base_offset >= self.end or producer not in oldest:
                    continue
                if not header.is_control:
                    if producer in inside:
                        first = min(first, header.base_offset)
                    continue
                inside.discard(producer)
                found = _commit(header)
                if found in hidden:
                    inside.add(producer)
                elif found < oldest[producer]:
                    del oldest[producer]  # all before it is older
        first = max(first, self._index.head.start)
        changed, self.end = first < self.end, min(first, self.end)
        return changed


def whole_ends(
    ends: Mapping[int, int], indexes: Mapping[int, Index], batches_of: Callable[[int, Row], Batches]
) -> dict[int, int]:
    """The last stable offsets `ends` by log, lowered so that each committed transaction is below all its ends or none.

    All arguments are of one instant. `batches_of` reads a row of a log. Logs without an index have no records.
    """
    logs = {log: _Log(index, ends[log], batches_of) for log, index in indexes.items()}
    hidden, changed = set[Commit](), list(logs.values())
    while changed:
        new = {commit for log in changed for commit in log.newly_hidden()} - hidden
        hidden |= new
        changed = [log for log in logs.values() if log.lower(new)] if new else []
    return {**ends, **{log: found.end for log, found in logs.items()}}


def with_commits(batches: Iterator[tuple[bytearray, int, BatchHeader]]) -> Batches:
    """Headers with whether the batch is a marker that commits, from bytes, position and header."""
    return [
        (
            header,
            header.is_control and header.record_count > 0 and control_type(data, at, header) is ControlType.COMMIT,
        )
        for data, at, header in batches
    ]


def _commit(header: BatchHeader) -> Commit:
    return Commit(header.producer_id, header.producer_epoch, header.max_timestamp)
