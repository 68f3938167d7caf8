"""Counts the visible records of a partition. The driver does this before a limited micro-batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from fencepost.protocol.topics import TopicPartition
from fencepost.spark_connector.source.reader import Fetches, FetchSettings, columns_of

SCAN_BYTES_MAX = 64 << 20
"""How many bytes of a partition a scan reads once it has found visible records. Beyond that it counts offsets."""
_FETCH_BYTES = 1 << 20
_NO_FIELDS: frozenset[str] = frozenset()


class Limit(NamedTuple):
    """The limits of a micro-batch: visible records, and their bytes in the log. None means no limit."""

    records: int | None = None
    size_bytes: int | None = None


class _Run(NamedTuple):
    """Visible records of one batch: at `offsets`, or without gaps from `begin` if `offsets` is None."""

    begin: int
    records: int
    size_bytes: int
    next_offset: int
    offsets: list[int] | None


class VisibleScan:
    """Counts visible records of one partition, batch by batch from `start`, as far as `take` allows.

    `end` is the end of a micro-batch with the counted records. It is after the invisible offsets that follow, so the
    next micro-batch starts at a record. `first_visible` is the first visible offset. Raises what the reader raises.
    """

    def __init__(self, reader: Fetches, start: int, stop: int) -> None:
        """`reader` reads from `start` to before `stop`."""
        self.end = start
        self.records = 0
        self.size_bytes = 0
        self.first_visible: int | None = None
        self._stop = stop
        self._start = start
        self._reader = reader
        self._runs = self._visible()
        self._next: _Run | None = None
        self._read_bytes = 0
        self._advance()

    @property
    def done(self) -> bool:
        return self.end >= self._stop

    def take(self, limit: Limit) -> None:
        """Count further records, at most as many as `limit` allows."""
        records, size_bytes = limit.records, limit.size_bytes
        while self._next is not None:
            run = self._next
            fits = run.records if records is None else min(run.records, records)
            if size_bytes is not None:
                fits = min(fits, size_bytes * run.records // max(run.size_bytes, 1))
            if fits <= 0:
                return
            taken_bytes = run.size_bytes * fits // run.records
            self.records += fits
            self.size_bytes += taken_bytes
            records = None if records is None else records - fits
            size_bytes = None if size_bytes is None else size_bytes - taken_bytes
            if fits < run.records:
                rest = None if run.offsets is None else run.offsets[fits:]
                self.end = run.begin + fits if rest is None else rest[0]
                self._next = _Run(self.end, run.records - fits, run.size_bytes - taken_bytes, run.next_offset, rest)
                return
            if self._read_bytes >= SCAN_BYTES_MAX:
                self.end = min(run.next_offset + (records or 0), self._stop)
                self._next = None
                return
            self._advance()

    def take_one(self) -> None:
        self.take(Limit(records=1))

    def _advance(self) -> None:
        self._next = next(self._runs, None)
        self.end = self._stop if self._next is None else self._next.begin
        if self.first_visible is None:
            self.first_visible = self.end

    def _visible(self) -> Iterator[_Run]:
        for fetched in self._reader.fetches():
            self._read_bytes += len(fetched.buffer)
            for at, header in fetched.batches:
                begin = max(header.base_offset, self._start)
                before = min(header.next_offset, self._stop)
                span = header.next_offset - header.base_offset
                if header.record_count == span:
                    if before > begin:
                        share = header.size_bytes * (before - begin) // span
                        yield _Run(begin, before - begin, share, before, None)
                    continue
                found = [
                    int(offset)
                    for columns in columns_of(
                        self._reader, fetched.buffer, [(at, header)], begin, self._stop, _NO_FIELDS
                    )
                    for offset in columns.offset
                ]
                if found:
                    yield _Run(found[0], len(found), header.size_bytes, before, found)
            del fetched  # otherwise it stays in memory while the reader waits for the next response


def limited_ends(
    scans: Mapping[TopicPartition, VisibleScan], stops: Mapping[TopicPartition, int], limit: Limit
) -> None:
    """Divide the limit among the scans, in proportion to the partitions' backlogs of offsets.

    A partition with few visible records leaves its share to the others. Each partition with visible records gives at
    least one, so that none starves. The total can therefore exceed a limit that is smaller than their number.
    """
    unfinished = [tp for tp in scans if not scans[tp].done]
    left = limit
    while unfinished and _is_left(left):
        backlog = {tp: stops[tp] - scans[tp].end for tp in unfinished}
        total = sum(backlog.values())
        for tp in unfinished:
            before = scans[tp].records
            scans[tp].take(Limit(*(None if most is None else most * backlog[tp] // total for most in left)))
            if scans[tp].records == before and before == 0:
                scans[tp].take_one()
        still = [tp for tp in unfinished if not scans[tp].done]
        if len(still) == len(unfinished):
            return
        unfinished, left = still, _left(limit, scans.values())


def _is_left(left: Limit) -> bool:
    return all(most is None or most > 0 for most in left)


def _left(limit: Limit, scans: Iterable[VisibleScan]) -> Limit:
    used = [(scan.records, scan.size_bytes) for scan in scans]
    return Limit(
        None if limit.records is None else limit.records - sum(records for records, _ in used),
        None if limit.size_bytes is None else limit.size_bytes - sum(size for _, size in used),
    )


def scan_settings(settings: FetchSettings) -> FetchSettings:
    """A task's settings, changed for the driver's scan: small fetches, and no CRC check, which tasks do anyway."""
    return replace(settings, fetch_bytes=min(settings.fetch_bytes, _FETCH_BYTES), check_crcs=False)
