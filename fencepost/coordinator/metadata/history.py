"""The history of the metadata: the changes of each transaction, and of each batch outside of one."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from fencepost.coordinator.metadata.delta import MetadataDelta
from fencepost.coordinator.metadata.image import EMPTY_IMAGE, MetadataImage
from fencepost.coordinator.metadata.transactions import MetadataLoader
from fencepost.protocol.metadata_entries import MetadataEntry, record_count
from fencepost.protocol.metadata_record_types import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
)


class Verdict(StrEnum):
    """The outcome of a transaction or a batch."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"
    """The log has neither its End nor its Abort yet."""


class LoggedEntry(NamedTuple):
    """A record of the log, or a run of partitions, with the offset of its first record."""

    offset: int
    entry: MetadataEntry


class MetadataChange(NamedTuple):
    """Records that count together or not at all: a transaction with its markers, or a batch's records outside of one.

    `name` is the transaction's (None without a transaction or a name), `reason` why it was aborted. `delta` is the step
    that it made visible, None if there is none. `timestamp_ms` (epoch) is that of its last batch.
    """

    first_offset: int
    next_offset: int
    timestamp_ms: int
    verdict: Verdict
    in_transaction: bool
    name: str | None
    reason: str | None
    entries: tuple[LoggedEntry, ...]
    delta: MetadataDelta | None


class MetadataHistory:
    """Folds a log as `MetadataLoader` does, and reports the outcome of each record."""

    def __init__(self, image: MetadataImage = EMPTY_IMAGE) -> None:
        self._deltas: list[MetadataDelta] = []
        self._loader = MetadataLoader(image, self._deltas.append)
        self._entries: list[LoggedEntry] = []
        self._timestamp_ms = -1

    @property
    def image(self) -> MetadataImage:
        """The newest image that contains only whole transactions."""
        return self._loader.image

    @property
    def next_offset(self) -> int:
        """The offset after the last loaded record."""
        return self._loader.next_offset

    @property
    def last_stable_offset(self) -> int:
        """The start of the open transaction, or `next_offset` if none is open."""
        return self._loader.last_stable_offset

    def take(self, base_offset: int, timestamp_ms: int, entries: Sequence[MetadataEntry]) -> list[MetadataChange]:
        """Load one batch; return the moments that it completes, in order. Raises MetadataCorrupt as `load_batch`."""
        moments: list[MetadataChange] = []
        self._timestamp_ms = timestamp_ms
        offset, plain = base_offset, base_offset
        waiting: list[MetadataEntry] = []
        for entry in entries:
            if isinstance(entry, BeginTransactionRecord | EndTransactionRecord | AbortTransactionRecord):
                moments += self._plain(plain, waiting)
                waiting = []
                self._loader.load_batch(offset, [entry])
                self._entries.append(LoggedEntry(offset, entry))
                offset = plain = offset + 1
                if self._loader.open is None:
                    moments.append(self._decided(entry))
            else:
                waiting.append(entry)
                offset += record_count((entry,))
        moments += self._plain(plain, waiting)
        return moments

    def pass_over(self, base_offset: int, next_offset: int) -> None:
        """Skip the offsets of a control batch. Raises MetadataCorrupt for a gap."""
        self._loader.pass_over(base_offset, next_offset)
        self._deltas.clear()

    def pending(self) -> MetadataChange | None:
        """The records so far of the open transaction; None if none is open."""
        if self._loader.open is None:
            return None
        name = self._loader.open.name
        return self._moment(Verdict.OPEN, self._loader.open.start_offset, True, name, None, None)

    def _plain(self, base_offset: int, entries: list[MetadataEntry]) -> list[MetadataChange]:
        if not entries:
            return []
        self._loader.load_batch(base_offset, entries)
        for entry in entries:
            self._entries.append(LoggedEntry(base_offset, entry))
            base_offset += record_count((entry,))
        if self._loader.open is not None:
            return []
        first = self._entries[0].offset
        moment = self._moment(Verdict.COMMITTED, first, False, None, None, self._step())
        self._entries = []
        return [moment]

    def _decided(self, last: MetadataEntry) -> MetadataChange:
        first = self._entries[0].entry
        name = first.name if isinstance(first, BeginTransactionRecord) else None
        offset, step = self._entries[0].offset, self._step()
        if isinstance(last, AbortTransactionRecord):
            moment = self._moment(Verdict.ABORTED, offset, True, name, last.reason, None)
        else:
            moment = self._moment(Verdict.COMMITTED, offset, True, name, None, step)
        self._entries = []
        return moment

    def _step(self) -> MetadataDelta | None:
        step = self._deltas[-1] if self._deltas else None
        self._deltas.clear()
        return step

    def _moment(
        self,
        verdict: Verdict,
        first_offset: int,
        in_transaction: bool,
        name: str | None,
        reason: str | None,
        delta: MetadataDelta | None,
    ) -> MetadataChange:
        return MetadataChange(
            first_offset,
            self._loader.next_offset,
            self._timestamp_ms,
            verdict,
            in_transaction,
            name,
            reason,
            tuple(self._entries),
            delta,
        )
