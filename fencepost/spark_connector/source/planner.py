"""The plan of a batch or micro-batch: the partitions, their fixed start and end, and the division into tasks."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields

from fencepost.protocol.topics import IsolationLevel, TopicPartition
from fencepost.spark_connector.offsets import EARLIEST, LATEST, Offsets, Position
from fencepost.spark_connector.source.java_regex import java_pattern
from fencepost.spark_connector.source.narrowing import Condition, admitted, earliest_ms, from_time, narrowed
from fencepost.spark_connector.source.options import Bound, SourceOptions
from fencepost.spark_connector.source.ranges import OffsetRange
from fencepost.spark_connector.source.reader import DataLossError, FetchSettings
from fencepost.spark_connector.source.scan import Limit, VisibleScan, limited_ends, scan_settings
from fencepost.spark_connector.source.sources import Source

log = logging.getLogger(__name__)

_NO_OFFSET = -1


class PlanError(ValueError):
    """The options name a topic, partition or time that does not exist, or an end that is not stable yet."""


class Planner:
    """Finds the offsets that the options mean. Raises PlanError, DataLossError and BrokerError."""

    def __init__(self, options: SourceOptions, cluster: Source, conditions: Sequence[Condition] = ()) -> None:
        """`conditions` are those of a batch query's filters: the plan leaves out what does not meet them."""
        self._options = options
        self._cluster = cluster
        self._conditions = conditions
        self._invisible: dict[TopicPartition, tuple[int, int]] = {}
        """Where a scan for visible records started, and the offset of the first one."""

    def partitions(self, *, may_be_missing: bool = False) -> list[TopicPartition]:
        """The subscribed partitions that exist now.

        Raises PlanError if a named topic or partition does not exist, unless `may_be_missing` is true.
        """
        wanted = self._options.subscription
        if wanted.pattern is not None:
            matches = java_pattern(wanted.pattern).search  # as Spark 4: anywhere in the name
            found = self._cluster.topics(None)
            return [TopicPartition(name, p) for name in sorted(found) if matches(name) for p in found[name]]
        names = wanted.topics if wanted.topics is not None else sorted({tp.topic for tp in wanted.partitions or ()})
        found = self._cluster.topics(names)
        missing = [name for name in names if name not in found]
        if missing and not may_be_missing:
            raise PlanError(f"there is no topic {', '.join(missing)} on this cluster")
        existing = [TopicPartition(name, number) for name in names for number in found.get(name, ())]
        if wanted.partitions is None:
            return existing
        absent = [tp for tp in wanted.partitions if tp not in existing]
        if absent and not may_be_missing:
            raise PlanError(f"there is no partition {', '.join(map(str, absent))} on this cluster")
        return [tp for tp in wanted.partitions if tp not in absent]

    def starting(self) -> Offsets:
        """Where a new query starts, for each partition.

        Raises PlanError if startingOffsets lie beyond a high watermark. With failOnDataLoss=false it starts there.
        """
        bound = self._options.starting
        start = self._resolve(bound, "starting", must_exist=not self._options.latest_if_no_timestamp)
        if bound.offsets is None:
            return start
        high_watermarks = self._list(dict.fromkeys(start, LATEST), IsolationLevel.READ_UNCOMMITTED)
        for tp in sorted(start):
            if start[tp] > high_watermarks[tp]:
                what = f"startingOffsets asks for {tp} from {start[tp]} on, but its high watermark is"
                if self._options.fail_on_data_loss:
                    raise PlanError(f"{what} {high_watermarks[tp]}")
                log.warning("%s %d; the query starts there (failOnDataLoss=false)", what, high_watermarks[tp])
        return {tp: min(offset, high_watermarks[tp]) for tp, offset in start.items()}

    def batch(self) -> list[OffsetRange]:
        """The tasks of a batch query. Raises PlanError if the options set the end before the start."""
        start, end = self.starting(), self.ending()
        if self._options.ending.mark is None:
            for tp in sorted(end):
                if start.get(tp, 0) > end[tp]:
                    raise PlanError(f"the query starts at offset {start[tp]} of {tp}, but ends at {end[tp]}")
        return self._tasks(start, self.not_before(start, end))

    def ending(self) -> Offsets:
        """Where a batch query ends: at most the last stable offset, or the high watermark for read_uncommitted.

        Raises PlanError if the options set a later end: the query would have to wait, perhaps without end.
        """
        ends = self._resolve(self._options.ending, "ending", must_exist=False)
        if self._options.ending.offsets is not None:
            limits = self._list(dict.fromkeys(ends, LATEST))
            for tp, end in ends.items():
                if end > limits[tp]:
                    raise PlanError(self._beyond(tp, end, limits[tp]))
        return ends

    def latest(self) -> Position:
        """The current ends: last stable offsets, or high watermarks for read_uncommitted.

        For streams: partitions that no longer exist are left out.
        """
        return self.position(self._list(dict.fromkeys(self.partitions(may_be_missing=True), LATEST)))

    def position(self, offsets: Offsets) -> Position:
        """These offsets, with the ids that their topics had when the planner last looked at its topics."""
        ids = self._cluster.topic_ids
        return Position(offsets, {topic: ids[topic].hex() for topic in {tp.topic for tp in offsets} & ids.keys()})

    def begin(self, start: Position, end: Position) -> Offsets:
        """Where a micro-batch begins after `start`: a topic with another id in `end` is read from its first records.

        A missing partition that is back goes on where it was.
        """
        recreated = start.created_again(end.topic_ids)
        again = [tp for tp in sorted(start.offsets) if tp.topic in recreated]
        for tp in again:
            read_to = f"after {tp} was read up to {start.offsets[tp]}"
            self._lost(f"topic {tp.topic} was deleted and created again {read_to}")
        first = self._list({tp: EARLIEST for tp in again if tp in end.offsets})
        known = {**start.missing, **start.offsets}
        return (
            {tp: known[tp] for tp in known if tp.topic not in recreated and tp not in start.missing}
            | {tp: known[tp] for tp in start.missing if tp.topic not in recreated and tp in end.offsets}
            | first
        )

    def with_missing(self, start: Position, end: Position) -> Position:
        """`end`, and how far partitions were read that are not there now.

        They may come back: a broker may not know a topic for a moment, and a subscription may change. With a pattern
        they are left out, because a query's topics may come and go without end. Raises DataLossError, before the end is
        in Spark's checkpoint.
        """
        lost = {tp: offset for tp, offset in start.offsets.items() if tp not in end.offsets}
        for tp in sorted(lost):
            self._lost(f"{self._absent(tp)}; it was read up to offset {lost[tp]}")
        if self._options.subscription.pattern is not None:
            return end
        recreated = start.created_again(end.topic_ids)
        missing = {
            tp: offset
            for tp, offset in {**start.missing, **lost}.items()
            if tp not in end.offsets and tp.topic not in recreated
        }
        topics = {tp.topic for tp in missing}
        ids = {topic: topic_id for topic, topic_id in start.topic_ids.items() if topic in topics}
        return end._replace(topic_ids={**ids, **end.topic_ids}, missing=missing)

    def _absent(self, tp: TopicPartition) -> str:
        wanted = self._options.subscription
        if tp.topic in (wanted.topics or (tp.topic,)) and tp in (wanted.partitions or (tp,)):
            return f"{tp} does not exist any more"
        return f"the query does not subscribe to {tp} any more"

    def not_before(self, start: Mapping[TopicPartition, int], end: Offsets) -> Offsets:
        """`end`, with the position of partitions that were already read beyond their last stable offset.

        This happens to a query that changed from read_uncommitted to read_committed. It also happens to one that
        started by time at a record of an open transaction. An end is kept if the high watermark is below `start`: that
        is data loss.
        """
        ahead = [tp for tp in end if start.get(tp, 0) > end[tp]]
        high_watermarks = self._list(dict.fromkeys(ahead, LATEST), IsolationLevel.READ_UNCOMMITTED)
        return end | {tp: start[tp] for tp in ahead if start[tp] <= high_watermarks[tp]}

    def high_watermarks(self) -> Offsets:
        """The high watermarks. Transactions of records between the LSO and the high watermark are still open."""
        return self._list(dict.fromkeys(self.partitions(may_be_missing=True), LATEST), IsolationLevel.READ_UNCOMMITTED)

    def stable_offsets_behind(self, high_watermarks: Offsets) -> Offsets:
        """The last stable offsets of the partitions whose high watermark is higher."""
        stable = self._list(dict.fromkeys(high_watermarks, LATEST), IsolationLevel.READ_COMMITTED)
        return {tp: offset for tp, offset in stable.items() if offset < high_watermarks[tp]}

    def rate_limited(self, start: Mapping[TopicPartition, int], end: Offsets, limit: int) -> Offsets:
        """`end` lowered to about `limit` offsets, in proportion to the partitions' backlogs.

        As with Spark's Kafka source, each partition with a backlog gives one offset at least.
        """
        known = self._with_new(start, end)
        sizes = {tp: max(0, end[tp] - known[tp]) for tp in end}
        total = sum(sizes.values())
        if total <= limit:
            return end
        return {tp: known[tp] + max(1, limit * size // total) if size else end[tp] for tp, size in sizes.items()}

    def limited(self, start: Mapping[TopicPartition, int], end: Offsets, limit: Limit) -> Offsets:
        """`end` lowered to about `limit` visible records or bytes, in proportion to the partitions' backlogs.

        The driver reads ahead and counts: aborted records, markers and compacted offsets do not count. It reads nothing
        if there are fewer offsets than `limit` has records.
        """
        known = self._with_new(start, end)
        total = sum(max(0, end[tp] - known[tp]) for tp in end)
        if limit.size_bytes is None and (limit.records is None or total <= limit.records):
            return end
        scans = self._scans(known, end)
        limited_ends(scans, end, limit)
        return end | {tp: scan.end for tp, scan in scans.items()}

    def backlog(self, start: Mapping[TopicPartition, int], end: Offsets) -> int:
        """The number of offsets between `start` and `end`."""
        known = self._with_new(start, end)
        return sum(max(0, end[tp] - known[tp]) for tp in end)

    def _scans(self, known: Offsets, end: Offsets) -> dict[TopicPartition, VisibleScan]:
        settings = scan_settings(fetch_settings(self._options))
        scans: dict[TopicPartition, VisibleScan] = {}
        for tp in sorted(end):
            if known[tp] < end[tp]:
                reader = self._cluster.reader(tp, known[tp], end[tp], settings, ahead=False)
                scan = scans[tp] = VisibleScan(reader, known[tp], end[tp])
                self._invisible[tp] = (known[tp], scan.first_visible or known[tp])
        return scans

    def ranges(self, start: Position, end: Position) -> list[OffsetRange]:
        """The tasks of a micro-batch, divided by minPartitions and maxRecordsPerPartition.

        Spark may have planned it before a restart: since then topics may have been deleted, created again, or cut.
        Records that the logs no longer hold are data loss: an error, or with failOnDataLoss=false a warning.
        Raises PlanError if the end is below the start because of open transactions.
        """
        gone = self._gone(start, end)
        left = {tp: offset for tp, offset in end.offsets.items() if tp not in gone}
        begin = self.begin(
            start._replace(
                offsets={tp: o for tp, o in start.offsets.items() if tp not in gone and tp not in end.missing}
            ),
            end,
        )
        back = sorted(tp for tp, to in self.not_before(begin, left).items() if to != left[tp])
        if back:
            raise PlanError(
                f"{', '.join(map(str, back))}: the query has read beyond the last stable offset;"
                " restart it when the open transactions have ended"
            )
        return self._tasks(begin, left)

    def _gone(self, start: Position, end: Position) -> set[TopicPartition]:
        """The partitions whose planned records are gone altogether."""
        moved = start.created_again(end.topic_ids)
        known = {**start.missing, **start.offsets}
        old = {tp for tp, to in end.offsets.items() if known.get(tp) != to or tp.topic in moved}
        if not old:
            return set()
        found = self._cluster.topics({tp.topic for tp in old})
        recreated = end.created_again(self.position(end.offsets).topic_ids)
        there = {tp for tp in old if tp.partition in found.get(tp.topic, ()) and tp.topic not in recreated}
        ends = self._list(dict.fromkeys(there, LATEST), IsolationLevel.READ_UNCOMMITTED)
        gone = {tp for tp in old if end.offsets[tp] > ends.get(tp, _NO_OFFSET)}
        for tp in sorted(gone):
            planned = f"{tp} was planned to be read up to offset {end.offsets[tp]}, but"
            if tp.partition not in found.get(tp.topic, ()):
                self._lost(f"{planned} it does not exist any more")
            elif tp.topic in recreated:
                self._lost(f"{planned} topic {tp.topic} was deleted and created again")
            else:
                self._lost(f"{planned} it ends at offset {ends[tp]}: was the topic created again?")
        return gone

    def _tasks(self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> list[OffsetRange]:
        for tp in start.keys() - end.keys():
            self._lost(f"{tp} does not exist any more; it was read up to offset {start[tp]}")
        known = self._with_new(start, end)
        planned = [OffsetRange(tp, known[tp], end[tp]) for tp in sorted(end) if known[tp] != end[tp]]
        busy = narrowed(planned, self._conditions)  # first, so that nothing else is missed as data loss
        first = self._list({found.tp: EARLIEST for found in busy})
        plan: list[OffsetRange] = []
        for tp, begin, stop, *_ in busy:
            if begin > stop:
                self._lost(f"{tp} ends at offset {stop}, but was read up to {begin}: was the topic created again?")
                begin = first[tp]
            elif begin < first[tp]:
                self._lost(f"{tp} begins at offset {first[tp]}: records from {begin} on were deleted")
                begin = first[tp]
            counted_from, first_visible = self._invisible.pop(tp, (0, 0))
            if begin == counted_from:
                begin = max(begin, min(first_visible, stop))
            if begin < stop:
                plan.append(OffsetRange(tp, begin, stop))
        pieces = split(self._from_time(plan), self._options.min_partitions, self._options.max_records_per_partition)
        return self._cluster.located(pieces)

    def _from_time(self, plan: list[OffsetRange]) -> list[OffsetRange]:
        time_ms = earliest_ms(self._conditions)
        if time_ms is None:
            return plan
        # Aborted and open records count, too: the answer is the same or lower, and no last stable offset bounds it.
        return from_time(plan, self._list({one.tp: time_ms for one in plan}, IsolationLevel.READ_UNCOMMITTED))

    def _with_new(self, start: Mapping[TopicPartition, int], end: Iterable[TopicPartition]) -> Offsets:
        """`start`, completed by new partitions. Those are read from their first record."""
        new = [tp for tp in end if tp not in start]
        first = self._list(dict.fromkeys(new, EARLIEST))
        for tp, offset in first.items():
            if offset > 0:
                self._lost(f"{tp} is new, but begins at offset {offset}")
        return {**start, **first}

    def _list(self, requested: Offsets, isolation: IsolationLevel | None = None) -> Offsets:
        return self._cluster.list_offsets(requested, self._options.isolation if isolation is None else isolation)

    def _resolve(self, bound: Bound, what: str, *, must_exist: bool) -> Offsets:
        partitions = self.partitions()
        wanted = admitted(partitions, self._conditions)
        if bound.mark is not None:
            return self._list(dict.fromkeys(wanted, bound.mark))
        if bound.timestamp_ms is not None:
            return self._by_time(dict.fromkeys(wanted, bound.timestamp_ms), what, must_exist)
        if bound.timestamps_ms is not None:
            self._check_complete(bound.timestamps_ms, partitions, f"{what}OffsetsByTimestamp")
            return self._by_time({tp: bound.timestamps_ms[tp] for tp in wanted}, what, must_exist)
        assert bound.offsets is not None, "a bound has one field"
        self._check_complete(bound.offsets, partitions, f"{what}Offsets")
        offsets = {tp: bound.offsets[tp] for tp in wanted}
        return {**offsets, **self._list({tp: offset for tp, offset in offsets.items() if offset < 0})}

    def _check_complete(self, given: Mapping[TopicPartition, int], partitions: list[TopicPartition], name: str) -> None:
        missing, unknown = sorted(set(partitions) - given.keys()), sorted(given.keys() - set(partitions))
        if missing or unknown:
            problems = [f"{name} lacks {', '.join(map(str, missing))}"] if missing else []
            problems += (
                [f"{name} names {', '.join(map(str, unknown))}, which the query does not read"] if unknown else []
            )
            raise PlanError("; ".join(problems))

    def _by_time(self, times_ms: Offsets, what: str, must_exist: bool) -> Offsets:
        found = self._list(times_ms)
        late = {tp: times_ms[tp] for tp, offset in found.items() if offset == _NO_OFFSET}
        # A record of that time may belong to an open transaction. Reading then starts at it once the transaction ends.
        found |= self._list(late, IsolationLevel.READ_UNCOMMITTED)
        none = [tp for tp in late if found[tp] == _NO_OFFSET]
        if none and must_exist:
            times = ", ".join(f"{tp} ({times_ms[tp]})" for tp in none)
            raise PlanError(
                f"no record has the {what} time or a later one in {times};"
                " startingOffsetsByTimestampStrategy can be latest"
            )
        found |= self._list(dict.fromkeys(none, LATEST))
        if what == "ending":
            ends = self._list(dict.fromkeys(late, LATEST))
            found |= {tp: min(found[tp], ends[tp]) for tp in late}
        return found

    def _beyond(self, tp: TopicPartition, end: int, limit: int) -> str:
        high_watermark = self._list({tp: LATEST}, IsolationLevel.READ_UNCOMMITTED)[tp]
        if end > high_watermark:
            return f"endingOffsets asks for {tp} up to {end}, but its high watermark is {high_watermark}"
        text = f"endingOffsets asks for {tp} up to {end}, but its last stable offset is {limit}"
        holder = self._cluster.open_transaction(tp)
        if holder is None:
            return f"{text}: an open transaction blocks it"
        return f"{text}: producer {holder.producer_id} has a transaction open since offset {holder.first_offset}"

    def _lost(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(f"{what}; with failOnDataLoss=false the query continues")
        log.warning("%s; the query continues (failOnDataLoss=false)", what)


def fetch_settings(options: SourceOptions) -> FetchSettings:
    """The options that a reader in a task needs."""
    return FetchSettings(**{one.name: getattr(options, one.name) for one in fields(FetchSettings)})


def split(
    ranges: list[OffsetRange], min_partitions: int | None, max_records_per_partition: int | None
) -> list[OffsetRange]:
    """Divide ranges into tasks: at least `min_partitions` tasks, if there are enough offsets.

    No task gets more than `max_records_per_partition` offsets. The parts of one range differ by at most one offset.
    """
    sizes = [found.stop - found.start for found in ranges]
    total = sum(sizes)
    pieces: list[OffsetRange] = []
    for found, size in zip(ranges, sizes, strict=True):
        count = 1
        if min_partitions is not None and min_partitions > len(ranges):
            count = max(count, -(-size * min_partitions // total))
        if max_records_per_partition is not None:
            count = max(count, -(-size // max_records_per_partition))
        count = min(count, size)
        cuts = [found.start + size * index // count for index in range(count + 1)]
        pieces += [found._replace(start=cuts[i], stop=cuts[i + 1]) for i in range(count)]
    return pieces
