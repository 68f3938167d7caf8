"""Which rows of a log become one, and the new row of such a group. Pure.

Runs become segments as soon as there are enough of them; segments of about one size become a larger one, as in
Lucene's LogMergePolicy. So a byte is written once more for each power of `fan_in` between a run and a full segment, and
a log has at most `fan_in` rows of each such size besides its full ones. A large run stays where it is: only its heads
go, because a snapshot has what they add up to.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fencepost.broker.cluster.engine import Placement, Row, RowKind
from fencepost.broker.cluster.reading.folding import encode_aborted
from fencepost.broker.log.compaction.cleanable import MAX_RELATIVE_OFFSET
from fencepost.broker.log.storage.txn_index import AbortedTransaction

SMALLEST_BYTES = 4 << 10
"""Rows below this size count as equal."""


class MergeLimits(NamedTuple):
    """When rows are merged, and how far."""

    segment_bytes: int
    """The most bytes in a segment, unless its first batch is larger. A row with half of them or more is full."""
    fan_in: int = 10
    """How many rows of about one size are merged into one."""
    bytes_max: int = 64 << 20
    """What one merge reads at most, unless its first group is larger."""

    def is_full(self, row: Row) -> bool:
        return row.placement.size_bytes >= self.segment_bytes / 2


Group = Sequence[Row]
"""Adjacent rows that become one. A single row keeps its bytes where they are, and loses its heads."""


class Merge(NamedTuple):
    """A change of one log: adjacent groups. If `folds`, they begin with the log's first run that has heads."""

    groups: Sequence[Group]
    folds: bool

    @property
    def rows(self) -> list[Row]:
        return [row for group in self.groups for row in group]

    @property
    def start(self) -> int:
        return self.groups[0][0].base

    @property
    def end(self) -> int:
        return self.groups[-1][-1].end

    @property
    def read_bytes(self) -> int:
        return sum(row.placement.size_bytes for group in self.groups if len(group) > 1 for row in group)


def due_merge(rows: Sequence[Row], folded_to: int, limits: MergeLimits, barrier: int = 0) -> Merge | None:
    """What to merge next in a log, if anything: its runs, or else segments.

    No group reaches over `barrier`, up to which the log was compacted.
    """
    first_run = next((n for n in range(len(rows) - 1, -1, -1) if rows[n].base < folded_to), -1) + 1
    runs, folded = rows[first_run:], rows[:first_run]
    if len(runs) >= limits.fan_in:
        return merge_of_runs(runs, limits)
    compacted = next((n for n, row in enumerate(folded) if row.end > barrier), len(folded))
    for part in (folded[:compacted], folded[compacted:]):
        group = _due_segments(part, limits)
        if group is not None:
            return Merge([group], False)
    return None


def merge_of_runs(runs: Sequence[Row], limits: MergeLimits) -> Merge:
    """The oldest of these runs, in groups: as many as one merge may read."""
    groups: list[Group] = []
    total = 0
    for group in _fitting(runs, limits):
        size = _bytes_of(group) if len(group) > 1 else 0
        if groups and total + size > limits.bytes_max:
            break
        groups.append(group)
        total += size
    return Merge(groups, True)


def _fitting(rows: Sequence[Row], limits: MergeLimits) -> Iterator[Group]:
    """All rows in adjacent groups of at most the size of a segment; a full row is a group of its own."""
    group: list[Row] = []
    size_bytes = 0
    for row in rows:
        fits = size_bytes + row.placement.size_bytes <= limits.segment_bytes
        if group and (not fits or limits.is_full(row) or row.end - group[0].base > MAX_RELATIVE_OFFSET):
            yield group
            group, size_bytes = [], 0
        group.append(row)
        size_bytes += row.placement.size_bytes
        if limits.is_full(row):
            yield group
            group, size_bytes = [], 0
    if group:
        yield group


def _due_segments(rows: Sequence[Row], limits: MergeLimits) -> Group | None:
    """The oldest group of segments behind the last full one that is due.

    From the largest size down, everything up to the last row of a size counts as of that size.
    """
    first = next((n for n in range(len(rows) - 1, -1, -1) if limits.is_full(rows[n])), -1) + 1
    rows = rows[first:]
    while rows:
        sizes = [_size_class(row, limits.fan_in) for row in rows]
        last = len(sizes) - 1 - sizes[::-1].index(max(sizes))
        for group in _fitting(rows[: last + 1], limits):
            if len(group) >= limits.fan_in or (len(group) > 1 and _bytes_of(group) >= limits.segment_bytes / 2):
                return group
        rows = rows[last + 1 :]
    return None


def _size_class(row: Row, fan_in: int) -> int:
    """The number of powers of `fan_in` between the smallest size and this one."""
    size_class, bound = 0, SMALLEST_BYTES
    while row.placement.size_bytes >= bound:
        size_class, bound = size_class + 1, bound * fan_in
    return size_class


def _bytes_of(rows: Sequence[Row]) -> int:
    return sum(row.placement.size_bytes for row in rows)


def merged(
    group: Group,
    aborted: Sequence[AbortedTransaction],
    placement: Placement,
    inline: bytes | None,
    checksum: int | None = None,
) -> Row:
    """The row of a group: a segment with these bytes and this checksum, or its only row without its heads."""
    first, last = group[0], group[-1]
    if first is last:
        return first._replace(heads=None, aborted=encode_aborted(aborted), inline=inline)
    return Row(
        base=first.base,
        count=last.end - first.base,
        kind=RowKind.SEGMENT,
        leader_epoch=last.leader_epoch,
        placement=placement,
        max_timestamp_ms=max(row.max_timestamp_ms for row in group),
        batches=sum(row.batches for row in group),
        producer_ids=tuple(sorted({one for row in group for one in row.producer_ids})),
        heads=None,
        aborted=encode_aborted(aborted),
        inline=inline,
        checksum=checksum,
    )
