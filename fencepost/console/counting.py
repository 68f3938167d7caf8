"""Counts a partition's log: records by the outcome of their transaction, transactions, and gaps in sequences."""

from collections.abc import Iterable
from typing import NamedTuple

from fencepost.console.partition_log import ends_transaction
from fencepost.protocol.batch_header import BatchHeader
from fencepost.protocol.sequence import is_next


class Counts(NamedTuple):
    """Of a stretch of a log, in records, batches and transactions."""

    plain: int
    committed: int
    aborted: int
    open: int
    batches: int
    markers: int
    commits: int
    aborts: int
    producers: int
    gaps: int
    """Batches whose first sequence does not follow the last one of their producer and epoch."""


class Count:
    """Folds batches, in order of their offsets."""

    def __init__(self) -> None:
        self._plain = self._committed = self._aborted = 0
        self._batches = self._markers = self._commits = self._aborts = self._gaps = 0
        self._open: dict[int, int] = {}
        """Records of producers whose marker is still to come."""
        self._last: dict[tuple[int, int], int] = {}
        """The last sequence of each producer id and epoch."""

    def take(self, read: Iterable[tuple[BatchHeader, str | None]]) -> None:
        """Count these batches; each with the name of its marker, None for data."""
        for header, marker in read:
            if marker is not None:
                self._take_marker(header.producer_id, marker)
                continue
            self._batches += 1
            if header.is_transactional:
                self._open[header.producer_id] = self._open.get(header.producer_id, 0) + header.record_count
            else:
                self._plain += header.record_count
            if header.producer_id >= 0:
                key = header.producer_id, header.producer_epoch
                last = self._last.get(key)
                self._gaps += last is not None and not is_next(last, header.base_sequence)
                self._last[key] = header.last_sequence

    def _take_marker(self, producer_id: int, marker: str) -> None:
        self._markers += 1
        if not ends_transaction(marker):
            return
        records = self._open.pop(producer_id, 0)
        if marker == "COMMIT":
            self._committed += records
            self._commits += 1
        else:
            self._aborted += records
            self._aborts += 1

    def result(self) -> Counts:
        """The counts so far; transactions without a marker count as open."""
        return Counts(
            self._plain,
            self._committed,
            self._aborted,
            sum(self._open.values()),
            self._batches,
            self._markers,
            self._commits,
            self._aborts,
            len({producer_id for producer_id, _ in self._last}),
            self._gaps,
        )
