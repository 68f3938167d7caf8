"""The ends of several logs between which each committed transaction is whole.

An open transaction hides the committed ones behind it in its own logs. In the other logs of such a transaction, nothing
may be open. A reader that ends each log at its last stable offset would get a part of it. So those logs end before it,
too; this may hide further transactions, until nothing changes.
"""

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from fencepost.broker.cluster.engine import Head, Row
from fencepost.broker.cluster.reading.folding import Index
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
    def __init__(self, index: Index, end: int, batches_of: Callable[[Head, Row], Batches]) -> None:
        self._index = index
        self.end = end
        self._batches_of = functools.cache(functools.partial(batches_of, index.head))

    def hidden(self) -> set[Commit]:
        """The transactions with records that `end` hides."""
        rows = [row for row in self._index.rows if row.end > self.end]
        return {commit for commit, offset in self._records(reversed(rows)) if offset >= self.end}

    def lower(self, hidden: Collection[Commit]) -> bool:
        """End before these transactions. Returns whether that changed the end."""
        oldest: dict[int, Commit] = {}
        for commit in hidden:
            oldest[commit.producer_id] = min(oldest.get(commit.producer_id, commit), commit)
        # `oldest` shrinks while the rows are read: those that only others wrote to are left out.
        rows = (row for row in reversed(self._index.rows) if not oldest.keys().isdisjoint(row.producer_ids))
        first = self.end
        for commit, offset in self._records(rows):
            if commit in hidden:
                first = min(first, offset)
            elif commit.producer_id in oldest and commit < oldest[commit.producer_id]:
                del oldest[commit.producer_id]  # all before it is older
        first = max(first, self._index.head.start)
        changed, self.end = first < self.end, min(first, self.end)
        return changed

    def _records(self, falling: Iterable[Row]) -> Iterator[tuple[Commit, int]]:
        """The batches of records that were committed: their transaction and first offset, from the last one on.

        A transaction's marker is behind its records, so rows are read from the log's end, even above `end`.
        """
        commits: dict[int, Commit] = {}
        for row in falling:
            for header, is_commit in reversed(self._batches_of(row)):
                if header.is_control:
                    commits.pop(header.producer_id, None)
                    if is_commit:
                        commits[header.producer_id] = _commit(header)
                elif header.producer_id in commits:
                    yield commits[header.producer_id], header.base_offset


def whole_ends(
    ends: Mapping[int, int], indexes: Mapping[int, Index], batches_of: Callable[[Head, Row], Batches]
) -> dict[int, int]:
    """The last stable offsets `ends` by log, lowered so that all records of a committed transaction are below the ends,
    or none is. Where its markers are does not count: readers need those of aborted transactions only.

    All arguments are of one instant. `batches_of` reads a row of a log. Logs without an index have no
    records.
    """
    logs = {log: _Log(index, ends[log], batches_of) for log, index in indexes.items()}
    hidden, changed = set[Commit](), list(logs.values())
    while changed:
        new = set[Commit]().union(*(log.hidden() for log in changed)) - hidden
        hidden |= new
        changed = [log for log in logs.values() if log.lower(new)] if new else []
    return {**ends, **{log: found.end for log, found in logs.items()}}


def with_commits(batches: Iterator[tuple[bytearray, int, BatchHeader]]) -> Batches:
    """Headers with whether the batch is a marker that commits, from bytes, position and header."""
    return [
        (header, header.is_control and header.record_count > 0 and control_type(data, at, header) is ControlType.COMMIT)
        for data, at, header in batches
    ]


def _commit(header: BatchHeader) -> Commit:
    return Commit(header.producer_id, header.producer_epoch, header.max_timestamp)
