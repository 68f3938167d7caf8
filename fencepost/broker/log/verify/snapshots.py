"""Checks the producer snapshots of a partition against its batches (rows P9, P10)."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fencepost.broker.log.producer_entries import NO_EPOCH, ProducerEntry
from fencepost.broker.log.producer_state import ProducerStates
from fencepost.broker.log.recovery.snapshots import SNAPSHOT_SUFFIX, decode_snapshot, snapshot_offsets
from fencepost.broker.log.storage.segment import file_name
from fencepost.broker.log.storage.store import CorruptLogFile
from fencepost.broker.log.verify.files import load
from fencepost.broker.log.verify.report import Level, Report

if TYPE_CHECKING:
    from fencepost.broker.log.verify.partition import Expectations

MEANING = "Sequences or open transactions would be wrong: delete it; the next start uses an older one and the batches"
AHEAD = "A crash leaves this; the next start deletes it"


class SnapshotCheck:
    """The check of one partition's snapshots, one after another, while its batches are replayed."""

    def __init__(self, directory: Path, names: Sequence[str], expected: "Expectations", report: Report) -> None:
        self._directory = directory
        self._expected = expected
        self._report = report
        self._offsets = snapshot_offsets(dict.fromkeys(names, 0))
        self._next = 0

    def state_at(self, offset: int) -> list[ProducerEntry] | None:
        """The producers in the snapshot at `offset`; None if it is missing or damaged."""
        if offset not in self._offsets:
            return None
        try:
            return self._load(offset)
        except CorruptLogFile:
            return None

    def reach(self, offset: int, producers: ProducerStates | None) -> None:
        """Check the snapshots up to `offset`, which the replay has reached; `producers` are None if unknown."""
        while self._next < len(self._offsets) and self._offsets[self._next] <= offset:
            self._check(self._offsets[self._next], producers)
            self._next += 1

    def finish(self, end_offset: int) -> None:
        """Report the snapshots beyond the log's end."""
        for offset in self._offsets[self._next :]:
            durable = offset <= self._expected.recovery_point
            self._report.add(
                Level.DAMAGE if durable else Level.NOTE,
                self._file(offset),
                f"is of offset {offset}, but the log ends at {end_offset}",
                "Acknowledged records are missing: restore the log from a backup" if durable else AHEAD,
                offset=offset,
            )
        self._next = len(self._offsets)

    def _file(self, offset: int) -> str:
        return f"{self._directory.name}/{file_name(offset, SNAPSHOT_SUFFIX)}"

    def _load(self, offset: int) -> list[ProducerEntry]:
        return decode_snapshot(load(self._directory / file_name(offset, SNAPSHOT_SUFFIX)) or b"", self._file(offset))

    def _check(self, offset: int, producers: ProducerStates | None) -> None:
        file = self._file(offset)
        try:
            entries = self._load(offset)
        except CorruptLogFile as error:
            level = Level.DAMAGE if offset <= self._expected.recovery_point else Level.NOTE
            self._report.add(level, file, error.why, MEANING, position=error.position, offset=offset)
            return
        if producers is None:
            return
        why = _difference(entries, producers, self._expected.compacted)
        if why is not None:
            self._report.damage(file, why, MEANING, offset=offset)


def _difference(entries: Sequence[ProducerEntry], replayed: ProducerStates, compacted: bool) -> str | None:
    """How a snapshot contradicts the batches; None if it can belong to this log.

    A producer in the batches and not in the snapshot has expired, unless it has an open transaction. Kafka's snapshots
    hold one batch of each producer. Compaction removes batches that a snapshot still holds, also of transactions that
    were open then; it keeps the markers of those.
    """
    known = {entry.producer_id: entry for entry in entries}
    for transaction in replayed.open_transactions():
        if transaction.producer_id not in known:
            return f"lacks the open transaction of producer {transaction.producer_id}"
    for entry in entries:
        should = replayed.get(entry.producer_id)
        if should is None:
            if not compacted:
                return f"holds producer {entry.producer_id}, which never wrote here"
        elif not _may_be(entry, should, compacted):
            return f"holds {entry}, the log has {should}"
    return None


def _may_be(entry: ProducerEntry, should: ProducerEntry, compacted: bool) -> bool:
    if compacted:
        begun = should.txn_first_offset < 0 or 0 <= entry.txn_first_offset <= should.txn_first_offset
        return begun and entry.epoch >= should.epoch
    if (entry.epoch, entry.txn_first_offset) != (should.epoch, should.txn_first_offset):
        return False
    if entry.coordinator_epoch not in (should.coordinator_epoch, NO_EPOCH):  # it may have expired and come again
        return False
    batches = should.batches[-len(entry.batches) :] if entry.batches else ()
    return entry.last_timestamp_ms == should.last_timestamp_ms and entry.batches == batches
