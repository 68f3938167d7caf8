"""What the files of a dead broker must hold: read on from where the last look ended, and all of it at the end."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.kit.history import Log, Place, events_of
from tests.kit.segment_files import (
    ABORT,
    Damaged,
    StoredBatch,
    batches_in,
    batches_of,
    read_log,
    segments_of,
    txn_entries,
)
from tests.kit.workload_writers import key_of


@dataclass(slots=True)
class _Tail:
    """A journal, read as far as it was written."""

    path: Path
    position: int = 0

    def more(self) -> Iterator[list[Any]]:
        with self.path.open("rb") as file:
            file.seek(self.position)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self.position += len(line)
                yield json.loads(line)


@dataclass(slots=True)
class _Told:
    """What one writer sent and was told, so far."""

    tail: _Tail
    topics: dict[str, str] = field(default_factory=dict)
    """Values without transaction and their topics."""
    sent: dict[int, list[tuple[Place, str]]] = field(default_factory=dict)
    """By transaction."""


def directory_of(data_dir: Path, place: Place) -> Path:
    """The directory of a partition, which may be in that of another core than the first, or on its way there."""
    name = f"{place[0]}-{place[1]}"
    places = [data_dir, *data_dir.glob("cores/*")]
    found = [one for where in places for one in (where / name, *where.glob(f"{name}.*-moving")) if one.is_dir()]
    assert len(found) <= 1, found
    return found[0] if found else data_dir / name


class FilesWatch:
    """Reads on in the files of all partitions, and holds what is there against what the writers were told."""

    def __init__(self, data_dir: Path, journals: Path) -> None:
        self._data_dir = data_dir
        self._journals = journals
        self._logs: dict[Place, _Growing] = {}
        self._told: dict[Path, _Told] = {}
        self.batches = 0
        self.found = 0

    def look(self, places: Iterable[Place]) -> list[str]:
        """Take in what is new while the broker is dead; what is wrong with it."""
        problems: list[str] = []
        for place in places:
            log = self._logs.setdefault(place, _Growing())
            log.directory = directory_of(self._data_dir, place)
            try:
                self.batches += log.read_on()
            except Damaged as damaged:
                problems.append(str(damaged))
        for path in sorted(self._journals.glob("*.jsonl")):
            told = self._told.setdefault(path, _Told(_Tail(path)))
            for event in told.tail.more():
                problem = self._judge(told, event)
                if problem is not None:
                    problems.append(f"{path.stem}: {problem}")
        return problems

    def _judge(self, told: _Told, event: list[Any]) -> str | None:
        match event:
            case ["send", None, str(topic), int(), str(value)]:
                told.topics[value] = topic
            case ["send", int(number), str(topic), int(partition), str(value)]:
                told.sent.setdefault(number, []).append(((topic, partition), value))
            case ["ack", str(value), int(partition), int(offset)]:
                return self._acknowledged((told.topics.pop(value), partition), value, offset)
            case ["committed", int(number)]:
                return self._committed(told.sent.pop(number, []))
            case ["aborted", int(number)]:
                told.sent.pop(number, None)
        return None

    def _acknowledged(self, place: Place, value: str, offset: int) -> str | None:
        found = self._logs[place].offsets.get(value)
        if found is None or (offset >= 0 and found != offset):
            return f"{value} was acknowledged at {place} {offset}; in the files it stands at {found}"
        self.found += 1
        return None

    def _committed(self, sent: list[tuple[Place, str]]) -> str | None:
        """The markers may still be owed, but the records stand and nobody has aborted them."""
        for place, value in sent:
            log = self._logs[place]
            if value not in log.offsets or value in log.aborted:
                return f"{value} of a committed transaction is not in the files of {place}, or aborted there"
            self.found += 1
        return None


class _Growing:
    """One partition's files, read from the place where the last reading ended."""

    def __init__(self) -> None:
        self.directory = Path()
        """Where they are now."""
        self._base = -1
        self._position = 0
        self._next_offset = 0
        self._open: dict[int, list[str]] = {}
        self.offsets: dict[str, int] = {}
        """Value -> offset."""
        self.aborted: set[str] = set()

    def read_on(self) -> int:
        """Take the new batches; a torn batch at the very end is left for the broker to cut off. Raises Damaged."""
        before, paths = len(self.offsets), segments_of(self.directory)
        if self._base >= 0 and all(int(path.stem) != self._base for path in paths):
            raise Damaged(f"{self.directory}: the segment {self._base} is gone")
        for path in paths:
            if int(path.stem) < self._base:
                continue
            start = self._position if int(path.stem) == self._base else 0
            for batch in _whole_batches(path, start, last=path == paths[-1]):
                self._take(batch)
        return len(self.offsets) - before

    def _take(self, batch: StoredBatch) -> None:
        if batch.base_offset != self._next_offset:
            where = f"{batch.path} at {batch.position}"
            raise Damaged(f"{where}: offset {batch.base_offset} instead of {self._next_offset}")
        self._base = int(batch.path.stem)
        self._position = batch.position + batch.size_bytes
        self._next_offset = batch.last_offset + 1
        if batch.is_control:
            undecided = self._open.pop(batch.producer_id, [])
            if batch.marker() == ABORT:
                self.aborted.update(undecided)
            return
        values = [((value or b"").decode(), offset) for offset, _, value in batch.records()]
        for value, offset in values:
            if value in self.offsets and value not in self.aborted:
                raise Damaged(f"{batch.path} at {batch.position}: {value} for the second time")
            self.offsets[value] = offset
        if batch.is_transactional:
            self._open.setdefault(batch.producer_id, []).extend(value for value, _ in values)


def _whole_batches(path: Path, start: int, *, last: bool) -> Iterator[StoredBatch]:
    try:
        yield from batches_in(path, start)
    except Damaged:
        if not last:
            raise


@dataclass(slots=True)
class FilesView:
    """Everything that the files say, as a reader of each isolation would see it."""

    committed: dict[Place, Log] = field(default_factory=dict)
    everything: dict[Place, Log] = field(default_factory=dict)


def read_files(data_dir: Path, places: Iterable[Place]) -> tuple[FilesView, list[str]]:
    """All partitions from their beginning, after a stop in order, when every transaction is decided."""
    view, problems = FilesView(), []
    for place in places:
        directory = directory_of(data_dir, place)
        try:
            batches = list(batches_of(directory))
        except Damaged as damaged:
            problems.append(str(damaged))
            continue
        log = read_log(batches)
        view.committed[place] = [(offset, (value or b"").decode()) for offset, _, value in log.committed]
        view.everything[place] = [
            (offset, (value or b"").decode())
            for batch in batches
            if not batch.is_control
            for offset, _, value in batch.records()
        ]
        if log.last_stable_offset != log.next_offset:
            problems.append(f"{place}: LSO {log.last_stable_offset}, end {log.next_offset}: undecided {list(log.open)}")
        noted = [(entry.producer_id, entry.first_offset, entry.last_offset) for entry in txn_entries(directory)]
        if noted != log.aborted:
            problems.append(f"{place}: .txnindex says {len(noted)} aborts, the batches {len(log.aborted)}")
    return view, problems


ENOUGH_TO_TRIM = 400
"""From so many records on something must have been taken away; a machine with other work to do may not come so far."""


def trimmed_problems(directory: Path, journals: Sequence[Path], *, compacted: bool) -> list[str]:
    """A partition that retention or compaction shortens: what is left is true, and no more is gone than may be.

    Retention takes whole segments from the front. Compaction takes a record only where a later one has its key.
    """
    sent: set[str] = set()
    acknowledged: dict[str, int] = {}
    for path in journals:
        for event in events_of(path):
            if event[0] == "send":
                sent.add(event[4])
            elif event[0] == "ack":
                acknowledged[event[1]] = event[3]
    paths = segments_of(directory)
    try:
        records = [record for batch in batches_of(directory, gaps=compacted) for record in batch.records()]
    except Damaged as damaged:
        return [str(damaged)]
    start = int(paths[0].stem)
    offsets = {(value or b"").decode(): offset for offset, _, value in records}
    problems = [f"{value}: nobody sent it" for value in offsets.keys() - sent]
    if len(offsets) != len(records):
        problems.append(f"{len(records) - len(offsets)} records are there twice")
    newest: dict[bytes | None, int] = {key: offset for offset, key, _ in records}
    for value, told in acknowledged.items():
        found = offsets.get(value)
        gone_rightly = newest.get(key_of(value), -1) > told if compacted else told < start
        if found != told and not (found is None and gone_rightly):
            problems.append(f"{value}: acknowledged at {told}, found at {found}")
    if len(acknowledged) >= ENOUGH_TO_TRIM and acknowledged.keys() <= offsets.keys():
        problems.append(f"nothing was taken away of {len(acknowledged)} acknowledged records")
    return problems
