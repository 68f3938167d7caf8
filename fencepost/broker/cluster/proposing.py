"""Computes a compaction for the owner of a log, which commits it: what a program without a lease may do.

Without `newest` only the rows up to the last full one are compacted, if there is one: brokers do not merge these any
more, so the proposal does not become stale by itself.
"""

from typing import NamedTuple

from fencepost.broker.cluster.folding import Index
from fencepost.broker.cluster.merging import MergeLimits
from fencepost.broker.cluster.proposals import Proposal, place_of
from fencepost.broker.cluster.row_cleaning import CleanJob, RowPlanner, cleanable_rows, ending_behind
from fencepost.broker.cluster.row_index import slim
from fencepost.broker.log.compaction.cleaning import CleaningLimits, CleaningStats
from fencepost.broker.log.config import LogConfig
from fencepost.protocol.topics import TopicPartition


class Computed(NamedTuple):
    """A proposal, and what it did."""

    proposal: Proposal
    stats: CleaningStats


def clean_job(
    index: Index, tp: TopicPartition, config: LogConfig, limits: CleaningLimits, now_ms: int, newest: bool = False
) -> CleanJob | None:
    """The compaction of a log; None if nothing may be compacted. `config` has the size of new segments.

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
