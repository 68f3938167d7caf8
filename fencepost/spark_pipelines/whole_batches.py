"""The ends of an export's batches, between which each committed transaction is whole over all partitions.

The driver reads the logs ahead, without their records' contents, and finds where the parts of each transaction begin
and end. The markers of one transaction have one producer id, epoch and time in all its logs. Where each transaction has
an epoch of its own (transactions of version 2), the time does not count.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from fencepost.protocol.batch_header import BatchHeader, iter_headers
from fencepost.protocol.control_records import ControlType, control_type
from fencepost.protocol.topics import IsolationLevel, TopicPartition
from fencepost.spark_connector.network.cluster import Cluster
from fencepost.spark_connector.offsets import Offsets
from fencepost.spark_connector.source.reader import FetchSettings, RangeReader
from fencepost.spark_pipelines.export_store import next_ends

Headers = Iterable[tuple[BatchHeader, bool]]
"""Batches by rising offset; whether it is a marker that commits."""
Read = Callable[[TopicPartition, int, int], Iterator[tuple[Headers, int]]]
"""Reads a partition from an offset to before another one, also what is aborted or open: batches, and the offset after
them.
"""


class Name(NamedTuple):
    """What the markers of one transaction have in common. Those of one producer are in order."""

    producer_id: int
    epoch: int
    """Of the markers."""
    timestamp_ms: int
    """Of the markers; 0 if the epoch is of this transaction only."""

    @property
    def records_epoch(self) -> int:
        """Of its records: markers of version 2 have the next one."""
        return self.epoch if self.timestamp_ms else self.epoch - 1


class Part(NamedTuple):
    """Where the records of a transaction are in one log: from `first` to before `stop`."""

    first: int
    stop: int


class Bounds(NamedTuple):
    """What a plan knows of the partitions. `high` was asked for after `stable`."""

    begin: Offsets
    first: Offsets
    """The oldest records that are there."""
    stable: Offsets
    high: Offsets
    """The high watermarks."""


@dataclass
class _Transactions:
    """What is known from all logs."""

    parts: dict[Name, dict[TopicPartition, Part]] = field(default_factory=dict)
    """Of the committed transactions."""
    newest: dict[int, Name] = field(default_factory=dict)
    """By producer id: the last transaction of which a marker was read."""


class _Log:
    """One partition, read up to `position`."""

    def __init__(self, tp: TopicPartition, start: int, all_logs: _Transactions) -> None:
        self.tp = tp
        self.position = start
        self.parts: dict[Name, Part] = {}
        """Of the committed transactions, in this log."""
        self.open: dict[int, tuple[Part, int]] = {}
        """By producer id: the records whose marker was not read yet, and their epoch."""
        self.newest: dict[int, Name] = {}
        """By producer id: the last marker that was read."""
        self.waiting: list[tuple[int, Name]] = []
        """A heap of the committed transactions that this plan has not seen yet, by their first offset."""
        self._all = all_logs
        self._high = start
        self._read: Iterator[tuple[Headers, int]] = iter(())

    def begin_plan(self, bounds: Bounds, read: Read) -> None:
        """Forget what is exported, and read on up to today's high watermark."""
        begin = bounds.begin[self.tp]
        for name in [name for name, part in self.parts.items() if part.stop <= begin]:
            del self.parts[name], self._all.parts[name][self.tp]
            if not self._all.parts[name]:
                del self._all.parts[name]
        self.waiting = [(part.first, name) for name, part in self.parts.items()]
        heapq.heapify(self.waiting)
        self.position = max(self.position, bounds.first[self.tp])
        self._high = bounds.high[self.tp]
        self._read = read(self.tp, self.position, self._high) if self.position < self._high else iter(())

    def read_on(self) -> bool:
        """Read the next batches. False at the high watermark."""
        found = next(self._read, None)
        if found is None:
            self.position = max(self.position, self._high)
            return False
        headers, self.position = found
        for header, is_commit in headers:
            if header.is_control:
                self._end(header, is_commit)
            elif header.is_transactional:
                known = self.open.get(header.producer_id)
                first = header.base_offset if known is None else known[0].first
                self.open[header.producer_id] = Part(first, header.next_offset), header.producer_epoch
        return True

    def read_to(self, end: int) -> None:
        """Read all before `end`, and what decides it."""
        while self.position < end and self.read_on():
            pass
        while any(part.first < end for part, _ in self.open.values()) and self.read_on():
            pass

    @property
    def is_at_end(self) -> bool:
        return self.position >= self._high

    def may_hold(self, name: Name) -> bool:
        """Whether records without a marker may be a part of this transaction."""
        newest, undecided = self.newest.get(name.producer_id), self.open.get(name.producer_id)
        return (newest is None or newest < name) and undecided is not None and undecided[1] == name.records_epoch

    def _end(self, header: BatchHeader, is_commit: bool) -> None:
        part, epoch = self.open.pop(header.producer_id, (None, header.producer_epoch))
        time_ms = header.max_timestamp if epoch == header.producer_epoch else 0
        name = self.newest[header.producer_id] = Name(header.producer_id, header.producer_epoch, time_ms)
        self._all.newest[name.producer_id] = max(name, self._all.newest.get(name.producer_id, name))
        if is_commit and part is not None:
            before = self.parts.get(name, part)  # two of one millisecond are taken for one
            self.parts[name] = self._all.parts.setdefault(name, {})[self.tp] = Part(before.first, part.stop)
            heapq.heappush(self.waiting, (before.first, name))


class WholeBatches:
    """Plans batch after batch. What was read ahead is kept for the next plan, so each batch is read once."""

    def __init__(self) -> None:
        self._logs: dict[TopicPartition, _Log] = {}
        self._all = _Transactions()
        self._read_past: dict[int, Name | None] = {}
        """By producer id: the last transaction behind whose parts all logs were read in this plan; None: all of it."""
        self.held_back: Name | None = None
        """A committed transaction that the last plan left for later, because a part of it cannot be read yet."""

    def ends(self, bounds: Bounds, most: int, read: Read) -> Offsets:
        """Ends for about `most` offsets, moved so that each transaction has all its records before them, or none.

        An end is raised to the end of a transaction, but never above the last stable offset: a transaction of which a
        part is there, or may be there, is left out, and so is all that is not whole without it. Then the ends may be
        where they begin.
        """
        self._read_past.clear()
        for tp, begin in bounds.begin.items():
            if tp not in self._logs:
                self._logs[tp] = _Log(tp, max(begin, bounds.first[tp]), self._all)
            self._logs[tp].begin_plan(bounds, read)
        ends = next_ends(bounds.begin, bounds.stable, most)
        torn = self._raise(ends, bounds.stable)
        self.held_back = min(torn, default=None)
        self._lower(ends, torn)
        return {tp: max(end, bounds.begin[tp]) for tp, end in ends.items()}

    def _raise(self, ends: Offsets, stable: Offsets) -> set[Name]:
        """Raise the ends over all transactions that begin before them; returns those that cannot be whole now."""
        seen, torn, changed = set[Name](), set[Name](), set(ends)
        while changed:
            tp = changed.pop()
            log = self._logs[tp]
            log.read_to(ends[tp])
            while log.waiting and log.waiting[0][0] < ends[tp]:
                _, name = heapq.heappop(log.waiting)
                if name in seen:
                    continue
                seen.add(name)
                if not self._is_there(name, stable):
                    torn.add(name)
                    continue
                for other, part in self._all.parts[name].items():
                    if part.stop > ends[other]:
                        ends[other] = part.stop
                        changed.add(other)
        return torn

    def _is_there(self, name: Name, stable: Offsets) -> bool:
        """Whether all parts of the transaction are below the last stable offsets."""
        logs, producer_id = self._logs.values(), name.producer_id
        self._read_behind(name)
        if any(part.stop > stable[tp] for tp, part in self._all.parts[name].items()):
            return False
        if self._all.newest[producer_id] > name or not any(log.may_hold(name) for log in logs):
            return True
        # A producer's transaction begins when all markers of the one before are written. So the records without a
        # marker are of a later transaction, if there is any later marker.
        for log in logs:
            while log.read_on():
                if self._all.newest[producer_id] > name:
                    return True
        return False

    def _read_behind(self, name: Name) -> None:
        """Read all logs until no part of the transaction comes any more."""
        producer_id = name.producer_id
        if producer_id in self._read_past:
            past = self._read_past[producer_id]
            if past is None or past >= name:
                return
        reached: list[Name] = []
        for log in self._logs.values():
            newest = log.newest.get(producer_id)
            while not log.is_at_end and (newest is None or newest < name):
                log.read_on()
                newest = log.newest.get(producer_id)
            if not log.is_at_end and newest is not None:
                reached.append(newest)
        self._read_past[producer_id] = min(reached, default=None)

    def _lower(self, ends: Offsets, torn: set[Name]) -> None:
        """End before the torn transactions, and before those that this tears."""
        by_stop = {tp: sorted((part.stop, name) for name, part in log.parts.items()) for tp, log in self._logs.items()}
        hidden = list(torn)
        while hidden:
            lowered = set()
            for tp, part in (found for name in hidden for found in self._all.parts[name].items()):
                if part.first < ends[tp]:
                    ends[tp] = part.first
                    lowered.add(tp)
            hidden = []
            for tp in lowered:
                while by_stop[tp] and by_stop[tp][-1][0] > ends[tp]:
                    hidden.append(by_stop[tp].pop()[1])


def headers_of(cluster: Cluster, settings: FetchSettings) -> Read:
    """Reads brokers' logs. Records that were deleted are left out with a warning: the tasks that read them fail."""
    settings = replace(settings, isolation=IsolationLevel.READ_UNCOMMITTED, check_crcs=False, fail_on_data_loss=False)

    def read(tp: TopicPartition, start: int, stop: int) -> Iterator[tuple[Headers, int]]:
        for fetched in RangeReader(cluster, tp, start, stop, settings, ahead=False).fetches():
            buffer = fetched.buffer
            headers = (
                (header, _commits(buffer, at, header))
                for at, header in iter_headers(buffer)
                if header.base_offset < stop
            )
            yield headers, fetched.next_offset

    return read


def _commits(buffer: memoryview, at: int, header: BatchHeader) -> bool:
    if not header.is_control or header.record_count == 0:
        return False
    return control_type(buffer, at, header) is ControlType.COMMIT


__all__ = ["Bounds", "Headers", "Name", "Read", "WholeBatches", "headers_of"]
