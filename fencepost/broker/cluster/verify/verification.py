"""Checks the stores of a cluster against each other: the rows in the database, and the bytes in the objects.

Brokers may run meanwhile. A log is checked as it was when its check began; if a finding may come from a change that
happened meanwhile, the log is checked again.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from fencepost.broker.cluster.engine import Engine, Head, Row, slot_of
from fencepost.broker.cluster.objects.object_store import Objects, object_name, place_name
from fencepost.broker.cluster.verify.log_check import LogCheck
from fencepost.broker.log.storage.store import CorruptLogFile
from fencepost.broker.log.verify.report import Level, Report
from fencepost.protocol.topics import TopicPartition

PAGE = 200
"""Rows that are read at once, with their bytes."""
READERS = 8
TRIES = 5


@dataclass(slots=True)
class StoreReport(Report):
    """The result of a check of the stores."""

    rows: int = 0
    objects: int = 0
    """Objects that rows refer to."""

    def as_dict(self) -> dict[str, object]:
        found = super(StoreReport, self).as_dict()
        del found["segments"]
        return {**found, "rows": self.rows, "objects": self.objects}


def verify_stores(
    engine: Engine,
    objects: Objects,
    report: StoreReport,
    *,
    topic: str | None = None,
    partition: int | None = None,
    shallow: bool = False,
    begin: Callable[[int], None] = lambda total_bytes: None,
) -> None:
    """Check all logs, or those of the named partitions. Calls `begin` with the number of bytes to read.

    Raises StoreUnavailable, and LookupError if no partition has that name.
    """
    heads = [head for head in engine.heads() if _is_chosen(head, topic, partition)]
    if not heads and (topic is not None or partition is not None):
        raise LookupError("the cluster has no such partition")
    begin(sum(head.size_bytes for head in heads))
    used: set[int] = set()
    with ThreadPoolExecutor(READERS, "verify") as readers:
        walk = _Walk(engine, objects, readers, report, shallow, used)
        for head in sorted(heads, key=lambda head: head.name):
            walk.check(head)
    report.objects = len(used)
    if topic is None and partition is None:
        _check_unused(engine, objects, report, used)


def _is_chosen(head: Head, topic: str | None, partition: int | None) -> bool:
    name, _, number = head.name.rpartition("-")
    tp = TopicPartition(name, int(number))
    return topic in (None, tp.topic) and partition in (None, tp.partition)


class _Walk:
    def __init__(
        self,
        engine: Engine,
        objects: Objects,
        readers: ThreadPoolExecutor,
        report: StoreReport,
        shallow: bool,
        used: set[int],
    ) -> None:
        self._engine = engine
        self._objects = objects
        self._readers = readers
        self._report = report
        self._shallow = shallow
        self._used = used

    def check(self, head: Head) -> None:
        """Check one log, again while it changes: merging, retention and deletion may come in between."""
        for number in range(TRIES):
            check, places = self._run(head, advance=number == 0)
            now = self._now(head)
            if now is None:
                return  # deleted
            if not check.findings or number == TRIES - 1 or (now == head and places == self._places(head)):
                break
            head = now
        report = self._report
        for finding in check.findings:
            report.findings.append(finding)
            report.found(finding)
        report.partitions.append(check.facts())
        report.rows += len(places)
        report.batches += check.batches
        report.records += check.records
        report.size_bytes += check.size_bytes

    def _run(self, head: Head, advance: bool) -> tuple[LogCheck, list[tuple[int, int, int]]]:
        check = LogCheck(head, self._engine.snapshots([head.log], "producers"), self._shallow)
        places = []
        for row, data in self._content(head):
            places.append(_place(row))
            self._used.add(row.placement.object_id)
            check.take(row, data, _label(head, row))
            if advance:
                self._report.advance(row.placement.size_bytes)
        check.finish()
        self._used.discard(0)
        return check, places

    def _content(self, head: Head) -> "Iterator[tuple[Row, bytes | CorruptLogFile]]":
        """The rows of a log with their bytes, or why they cannot be read."""
        start = 0
        while rows := self._engine.rows(head.log, start, head.next, inline=True, limit=PAGE):
            yield from zip(rows, self._readers.map(self._read, rows), strict=True)
            start = rows[-1].end

    def _read(self, row: Row) -> bytes | CorruptLogFile:
        if not row.placement.object_id:
            return row.inline or b""
        try:
            return self._objects.get(*row.placement)
        except CorruptLogFile as error:
            return error

    def _now(self, head: Head) -> Head | None:
        return {one.log: one for one in self._engine.heads([slot_of(head.log)])}.get(head.log)

    def _places(self, head: Head) -> list[tuple[int, int, int]]:
        found: list[tuple[int, int, int]] = []
        start = 0
        while rows := self._engine.rows(head.log, start, head.next):
            found += map(_place, rows)
            start = rows[-1].end
        return found


def _place(row: Row) -> tuple[int, int, int]:
    return row.base, row.placement.object_id, row.placement.position


def _label(head: Head, row: Row) -> str:
    return f"{head.name} in {place_name(row.placement.object_id)}"


def _check_unused(engine: Engine, objects: Objects, report: StoreReport, used: set[int]) -> None:
    """Count the objects that no row refers to. They cost money, and nothing else."""
    unused = [object_id for object_id in objects.ids() if object_id not in used]
    known: set[int] = set()
    for start in range(0, len(unused), 1000):
        known |= engine.known(unused[start : start + 1000])
    unknown = [object_id for object_id in unused if object_id not in known]
    for found, what, meaning in (
        (sorted(known), "no row refers to", "They are written now, or garbage collection deletes them soon"),
        (
            sorted(unknown),
            "the database does not know",
            "A broker was killed, or this database is older than the objects. They only take space",
        ),
    ):
        if found:
            many = "1 object" if len(found) == 1 else f"{len(found)} objects"
            names = ", ".join(map(object_name, found[:3])) + (", ..." if len(found) > 3 else "")
            report.add(Level.NOTE, objects.place, f"{what} {many} ({names})", meaning)
