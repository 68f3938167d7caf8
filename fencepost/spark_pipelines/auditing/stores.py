"""Plans an audit of a cluster's stores: one cut, read in one transaction of the database. No broker is asked."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from fencepost.broker.cluster.database.table_facts import ObjectUse
from fencepost.broker.cluster.engine import Row, RowKind
from fencepost.broker.cluster.objects.object_store import ObjectMissing, place_name
from fencepost.broker.cluster.reading.folding import Folded, Index
from fencepost.broker.cluster.verify.cut import Cut, MetadataView, cut_of
from fencepost.broker.cluster.verify.row_checks import before_row, bounds_differences, size_difference, use_difference
from fencepost.broker.log.storage.store import CorruptLogFile
from fencepost.coordinator.txn.codec import UnreadableRecord
from fencepost.protocol.batch_header import CorruptBatch
from fencepost.protocol.topics import TRANSACTION_TOPIC, TopicPartition
from fencepost.spark_connector.source.store_cluster import StoreCluster
from fencepost.spark_connector.source.store_settings import StoreSettings
from fencepost.spark_pipelines.auditing.bounds import Bounds
from fencepost.spark_pipelines.auditing.directories import fold_owners
from fencepost.spark_pipelines.auditing.findings import PartitionReport, Rule
from fencepost.spark_pipelines.auditing.owners import Owner, with_owners
from fencepost.spark_pipelines.auditing.plan import Plan, StorePiece
from fencepost.spark_pipelines.errors import PipelineError

if TYPE_CHECKING:
    from fencepost.broker.cluster.database.postgres import PostgresEngine
    from fencepost.broker.cluster.objects.row_objects import RowObjects

PIECE_BYTES = 64 << 20
"""The most bytes in one task's piece, unless one row has more."""
PIECE_ROWS = 2000
_TRIES = 3


@dataclass
class StorePlan:
    """The plan, and what only the driver knows: the rows of the cut, and what is wrong with them."""

    plan: Plan
    rows: dict[TopicPartition, Sequence[Row]] = field(default_factory=dict)
    faults: list[tuple[TopicPartition, Rule, int, str]] = field(default_factory=list)
    notes: list[tuple[TopicPartition, str]] = field(default_factory=list)

    def complete(self, reports: Sequence[PartitionReport]) -> None:
        """Add to the reports of the tasks what the driver knows."""
        by_name = {TopicPartition(one.topic, one.partition): one for one in reports}
        for tp, rule, offset, what in self.faults:
            by_name[tp].fault(rule, offset, what)
        for tp, note in self.notes:
            by_name[tp].notes.append(note)
        for tp, report in by_name.items():
            if self.plan.owners is not None:
                with_owners(report, self.plan.owners)
            rows = self.rows.get(tp, ())
            report.faults = [replace(one, place=_place_of(rows, one.offset)) for one in report.faults]


def plan_stores(settings: StoreSettings, topics: Collection[str]) -> StorePlan:
    """The topics' partitions as the stores have them at one instant. No topics means all, internal ones too.

    Raises PipelineError if a topic does not exist; StoreUnavailable; SchemaMismatch; CorruptLogFile if the metadata are
    damaged; ValueError for a wrong address, or a database that no broker has used.
    """
    cluster = StoreCluster(settings)
    try:
        for _ in range(_TRIES - 1):
            try:
                return cluster.with_retries(lambda: _planned(*cluster.stores(), settings, topics))
            except ObjectMissing:
                continue  # merged and deleted since the transaction began: a newer cut has other rows
        return cluster.with_retries(lambda: _planned(*cluster.stores(), settings, topics))
    finally:
        cluster.close()


def _planned(
    engine: PostgresEngine, row_objects: RowObjects, settings: StoreSettings, topics: Collection[str]
) -> StorePlan:
    with cut_of(engine, row_objects, MetadataView()) as cut:
        when = engine.instant()
        logs = _logs(cut, topics, engine.place)
        indexes = cut.index(list(logs.values()))
        uses = {use.object_id: use for use in engine.object_uses()}
        owners = _owners(cut)
    plan = Plan(f"{engine.place} and {settings.objects} as of {when}", owners=owners, rules=[one.value for one in Rule])
    found = StorePlan(plan)
    for tp, log in logs.items():
        index = indexes.get(log)
        if index is None:
            plan.bounds[tp] = Bounds(start=0, end=0)
            continue
        found.rows[tp] = index.rows
        found.faults += [(tp, Rule.ROWS, *wrong) for wrong in _wrong_rows(index)]
        found.faults += [(tp, Rule.KEPT, *wrong) for wrong in _wrong_uses(index, uses)]
        size = size_difference(index.head, sum(row.placement.size_bytes for row in index.rows))
        if size is not None:
            found.notes.append((tp, f"{size}: retention by size deletes too early or too late"))
        if owners is None:
            found.notes.append((tp, f"{TRANSACTION_TOPIC} is damaged, so the owners of open transactions are unknown"))
        _add(found, tp, log, index, cut.is_compacted(tp.topic), settings)
    return found


def _logs(cut: Cut, topics: Collection[str], where: str) -> dict[TopicPartition, int]:
    absent = sorted(set(topics) - cut.topics.keys())
    if absent or not cut.topics:
        there = ", ".join(sorted(cut.topics)) or "none at all"
        what = f"no topic {', '.join(absent)}" if absent else "no topic"
        raise PipelineError(f"there is {what} in {where}; there are: {there}")
    chosen = [cut.topics[name] for name in sorted(topics or cut.topics)]
    partitions = [TopicPartition(topic.name, number) for topic in chosen for number in range(topic.partitions)]
    return {tp: log for tp in partitions if (log := cut.log_of(tp)) is not None}


def _owners(cut: Cut) -> dict[int, Owner] | None:
    """The transaction coordinators' last states at the cut, by producer id; None if their logs are damaged."""
    last: dict[str, tuple[int, Owner]] = {}
    topic = cut.topics.get(TRANSACTION_TOPIC)
    for number in range(0 if topic is None else topic.partitions):
        log = cut.log_of(TopicPartition(TRANSACTION_TOPIC, number))
        assert log is not None, "the partition is one of the topic's"
        try:
            for data, batches in cut.content(log):
                for at, header in batches:
                    fold_owners(last, header, data, at)
        except ObjectMissing:
            raise
        except (CorruptLogFile, CorruptBatch, UnreadableRecord):
            return None
    return dict(last.values())


def _add(
    found: StorePlan, tp: TopicPartition, log: int, index: Index, compacted: bool, settings: StoreSettings
) -> None:
    """The bounds and the pieces of one log."""
    head = index.head
    try:
        folded: Folded | None = index.fold()
    except CorruptLogFile as error:
        folded = None
        what = f"{error}, so the last stable offset and the aborted transactions are unknown"
        found.faults.append((tp, Rule.ROWS, head.start, what))
    stable = None
    if folded is not None and (folded.open is None or folded.open.first_offset >= head.start):
        stable = folded.stable, folded.stable
    merged_to = max((row.end for row in index.rows if row.kind is RowKind.SEGMENT), default=0)
    compacted_to = max(index.cleaned_to, merged_to if compacted else 0)
    bounds = Bounds(head.start, head.next, stable, compacted=compacted_to > 0, compacted_to=compacted_to)
    found.plan.bounds[tp] = bounds if folded is not None else replace(bounds, listed=0)
    aborted = () if folded is None else folded.aborted
    for number, rows in enumerate(_pieces(index.rows)):
        ended = tuple(one for one in aborted if rows[0].base <= one.last_offset < rows[-1].end)
        size_bytes = sum(row.placement.size_bytes for row in rows)
        known = head.start, tuple(rows), index.folded_to, compacted or compacted_to > 0, ended
        found.plan.pieces.append(StorePiece(tp, number, log, *known, settings, size_bytes))


def _pieces(rows: Sequence[Row]) -> Iterator[list[Row]]:
    piece: list[Row] = []
    size_bytes = 0
    for row in rows:
        if piece and (size_bytes + row.placement.size_bytes > PIECE_BYTES or len(piece) == PIECE_ROWS):
            yield piece
            piece, size_bytes = [], 0
        piece.append(row)
        size_bytes += row.placement.size_bytes
    if piece:
        yield piece


def _wrong_rows(index: Index) -> Iterator[tuple[int, str]]:
    """Offsets at which a log's rows do not continue one another, and why."""
    end: int | None = None
    for row in index.rows:
        wrong = before_row(index.head, end, row)
        if wrong is not None:
            yield wrong
        end = row.end
    yield from bounds_differences(index.head, end)


def _wrong_uses(index: Index, uses: Mapping[int, ObjectUse]) -> Iterator[tuple[int, str]]:
    """The first offset of each object that may be deleted, and why."""
    seen = {0}
    for row in index.rows:
        object_id = row.placement.object_id
        if object_id in seen:
            continue
        seen.add(object_id)
        wrong = use_difference(uses[object_id])
        if wrong is not None:
            yield row.base, wrong


def _place_of(rows: Sequence[Row], offset: int) -> str:
    number = bisect_right(rows, offset, key=lambda row: row.base) - 1
    return place_name(rows[number].placement.object_id) if number >= 0 and offset < rows[number].end else ""
