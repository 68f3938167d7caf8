"""Compactions that another program computes, a value in the database: how it does so, and what the log's owner checks.

The value is JSON. A proposal counts only for the rows that it was computed from: if the log has others, it is stale.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from fencepost.broker.cluster.engine import Placement, Replacement, Row, RowKind
from fencepost.broker.cluster.growth.merging import MergeLimits
from fencepost.broker.cluster.growth.row_cleaning import CleanJob, RowPlanner, cleanable_rows, ending_behind
from fencepost.broker.cluster.reading.folding import Index, aborted_in
from fencepost.broker.cluster.reading.row_index import slim
from fencepost.broker.log.compaction.cleaning import CleaningLimits, CleaningStats
from fencepost.broker.log.config import LogConfig
from fencepost.broker.log.producer_entries import ProducerEntry
from fencepost.broker.log.storage.txn_index import AbortedTransaction
from fencepost.protocol.topics import TopicPartition

FORMAT = 2
Place = tuple[int, int, Placement]
"""The base offset, the number of offsets and the placement of a row: equal for equal records."""


class Refused(Exception):
    """The owner does not commit a proposal; the text says why."""


class Proposal(NamedTuple):
    """A compaction of the rows with which a log begins."""

    read: Sequence[Place]
    """All rows from the first one of the log to the end of the compacted range."""
    replacements: Sequence[Replacement]
    """To be committed in this order. Each has one new row."""
    cleaned_to: int
    """The first dirty offset after all replacements."""

    @property
    def end(self) -> int:
        return self.read[-1][0] + self.read[-1][1]


class LogFacts(NamedTuple):
    """What the owner of a log knows about it."""

    rows: Sequence[Row]
    sealed_to: int
    """No row from here on may be compacted: runs with headers, and open transactions."""
    compacted: bool
    """Whether the topic's cleanup.policy has `compact`."""
    producers: Collection[ProducerEntry]
    aborted: Callable[[int, int], Collection[AbortedTransaction]]
    """The aborted transactions that overlap a range of offsets."""


def place_of(row: Row) -> Place:
    return row.base, row.count, row.placement


def encode(proposal: Proposal) -> bytes:
    tree = {
        "format": FORMAT,
        "read": [[base, count, *placement] for base, count, placement in proposal.read],
        "replacements": [
            {"bases": list(one.bases), "objects": list(one.objects), "row": _tree_of(one.rows[0])}
            for one in proposal.replacements
        ],
        "cleaned_to": proposal.cleaned_to,
    }
    return json.dumps(tree, separators=(",", ":")).encode()


def decode(log: int, value: bytes) -> Proposal:
    """The proposal of a log. Raises Refused if the value is none."""
    try:
        tree = json.loads(value)
        if tree["format"] != FORMAT:
            raise Refused(f"its format is {tree['format']}, this broker knows {FORMAT}: use one version of fencepost")
        read = [(base, count, Placement(*place)) for base, count, *place in tree["read"]]
        replacements = [_replacement_of(log, one) for one in tree["replacements"]]
        proposal = Proposal(read, replacements, int(tree["cleaned_to"]))
    except (ValueError, KeyError, TypeError) as error:
        raise Refused(f"it cannot be read: {error!r}") from error
    if not read:
        raise Refused("it names no rows")
    return proposal


def pending(proposal: Proposal, facts: LogFacts) -> list[Replacement]:
    """The replacements that are still to be committed: the first ones may have been, before a takeover.

    Raises Refused if the log has other rows than those that the proposal was computed from, or if the proposal breaks
    a rule of compaction that can be checked without the records.
    """
    if not facts.compacted:
        raise Refused("the topic is not compacted any more")
    if proposal.end > facts.sealed_to:
        raise Refused(f"it reaches offset {proposal.end}, but only rows below {facts.sealed_to} may be compacted")
    if proposal.cleaned_to > proposal.end:
        raise Refused(f"it says that offset {proposal.cleaned_to} is reached, but it ends at {proposal.end}")
    left: list[Replacement] = []
    expected: list[Place] = []
    old, number = proposal.read, 0
    there = {place_of(row) for row in facts.rows}
    for one in proposal.replacements:
        count = len(one.bases)
        while number < len(old) and old[number][0] < one.start:
            expected.append(old[number])
            number += 1
        replaced = old[number : number + count]
        _check_span(one, replaced)
        number += count
        if not left and place_of(one.rows[0]) in there:
            expected.append(place_of(one.rows[0]))
            continue
        expected += replaced
        left.append(one)
        _check_row(one.rows[0], facts)
    expected += old[number:]
    if [place_of(row) for row in facts.rows if row.base < proposal.end] != expected:
        raise Refused("the rows have changed since: they were merged, compacted or deleted. Run the compaction again")
    return left


def _check_span(one: Replacement, replaced: Sequence[Place]) -> None:
    """The new row has exactly the offsets of adjacent old rows, so the log keeps its bounds."""
    row = one.rows[0]
    bases = [base for base, _, _ in replaced]
    if not bases or bases != list(one.bases) or row.base != bases[0]:
        raise Refused(f"the new row at offset {row.base} does not replace rows that the compaction has read")
    end = replaced[-1][0] + replaced[-1][1]
    if row.end != end:
        raise Refused(f"the new row at offset {row.base} ends at {row.end}, its rows at {end}")


def _check_row(row: Row, facts: LogFacts) -> None:
    if row.kind is not RowKind.SEGMENT or row.heads is not None:
        raise Refused(f"the new row at offset {row.base} is no segment")
    if row.placement.object_id == 0 and len(row.inline or b"") != row.placement.size_bytes:
        raise Refused(f"the new row at offset {row.base} has neither an object nor its bytes")
    unknown = set(aborted_in(row)) - set(facts.aborted(row.base, row.end))
    if unknown:
        raise Refused(f"the new row at offset {row.base} names {len(unknown)} aborted transactions that are none")
    for entry in facts.producers:
        is_inside = entry.batches and row.base <= entry.batches[-1].last_offset < row.end
        if is_inside and entry.producer_id not in row.producer_ids:
            raise Refused(f"the new row at offset {row.base} lacks the last batch of producer {entry.producer_id}")


def _tree_of(row: Row) -> list[Any]:
    blobs = [None if blob is None else b64encode(blob).decode() for blob in (row.heads, row.aborted, row.inline)]
    return [
        *row[:2],
        int(row.kind),
        row.leader_epoch,
        *row.placement,
        *row[5:7],
        list(row.producer_ids),
        *blobs,
        row.checksum,
    ]


def _replacement_of(log: int, tree: dict[str, Any]) -> Replacement:
    base, count, kind, epoch, object_id, position, size, timestamp, batches, ids, *rest = tree["row"]
    *blobs, checksum = rest
    heads, aborted, inline = (None if blob is None else b64decode(blob) for blob in blobs)
    facts = (RowKind(kind), epoch, Placement(object_id, position, size), timestamp, batches, tuple(ids))
    row = Row(base, count, *facts, heads, aborted or b"", inline, checksum)
    return Replacement(log, base, row.end, tree["bases"], [row], tree["objects"])


class Computed(NamedTuple):
    """A proposal, and what it did."""

    proposal: Proposal
    stats: CleaningStats


def clean_job(
    index: Index, tp: TopicPartition, config: LogConfig, limits: CleaningLimits, now_ms: int, newest: bool = False
) -> CleanJob | None:
    """The compaction of a log; None if nothing may be compacted. `config` has the size of new segments.

    Without `newest` only the rows up to the last full one are compacted, if there is one: brokers do not merge these
    any more, so the proposal does not become stale by itself.

    Raises CorruptLogFile if the snapshot of the producers or the headers in a row are damaged.
    """
    folded = index.fold()
    slimmed = [slim(row) for row in index.rows]
    range_ = cleanable_rows(slimmed, index.folded_to, config, index.cleaned_to, index.head.start, folded.stable, now_ms)
    merging = MergeLimits(config.segment_bytes)
    full_to = max((row.end for row in slimmed if row.end <= range_.upper_offset and merging.is_full(row)), default=0)
    if full_to > range_.first_dirty_offset and not newest:
        range_ = cleanable_rows(slimmed, full_to, config, index.cleaned_to, index.head.start, folded.stable, now_ms)
    rows = [row for row in slimmed if row.end <= range_.upper_offset]
    if not range_.dirty_bytes or not rows:
        return None
    return CleanJob(
        index.head.log,
        tp,
        rows,
        range_,
        config,
        folded.producers,
        limits,
        bytes_per_second=float("inf"),
        now_ms=now_ms,
        aborted=ending_behind(rows, folded.aborted),
    )


def computed(planner: RowPlanner, job: CleanJob) -> Computed | None:
    """Compact a log into new objects; None if its rows have changed since. See `RowPlanner.plan` for errors."""
    planned = planner.plan(job)
    if planned is None:
        return None
    replacements = list(planned.replacements)
    proposal = Proposal([place_of(row) for row in job.rows], replacements, planned.cleaned_to)
    return Computed(proposal, planned.stats)
