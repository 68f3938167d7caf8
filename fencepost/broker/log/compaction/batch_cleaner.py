"""Which records of one batch compaction keeps (rows L4 to L6, KIP-534, KIP-280's offset strategy)."""

from typing import Protocol

from fencepost.broker.log.compaction.cleaned_transactions import CleanedTransactions
from fencepost.broker.log.compaction.offset_map import OffsetMap
from fencepost.broker.log.compaction.record_work import Steps, batch_of, records_of
from fencepost.broker.log.producer_state import ProducerStates
from fencepost.broker.log.storage.txn_index import TxnIndex
from fencepost.protocol.batch_header import BatchHeader
from fencepost.protocol.record_filter import RawRecord, emptied, filtered, vacated

RECORDS_PER_STEP = 128

Kept = tuple[BatchHeader, bytes | bytearray | memoryview] | None
"""The cleaned batch with its header; None if compaction removes the batch."""


class Counts(Protocol):
    """The counters of a compaction."""

    records_read: int
    records_kept: int
    keyless: int


class BatchCleaner:
    """Cleans the batches of a log in their order; `map_end` is the last offset that `offsets` covers."""

    def __init__(
        self,
        producers: ProducerStates,
        transactions: CleanedTransactions,
        offsets: OffsetMap,
        map_end: int,
        now_ms: int,
        delete_retention_ms: int,
        limit_bytes: int,
        counts: Counts,
    ) -> None:
        self._producers = producers
        self._transactions = transactions
        self._offsets = offsets
        self._map_end = map_end
        self._now_ms = now_ms
        self._new_horizon_ms = now_ms + delete_retention_ms
        self._limit_bytes = limit_bytes
        self._counts = counts

    def clean(self, header: BatchHeader, data: memoryview, is_last: bool, aborted: TxnIndex) -> Steps[Kept]:
        """The cleaned batch. `is_last`: the new segment ends with this batch, so its last offset must be kept.

        Adds an entry to `aborted` for a marker that is kept. Raises CorruptBatch.
        """
        self._counts.records_read += header.record_count
        if header.is_control:
            kept = yield from self._clean_marker(header, data, is_last, aborted)
        else:
            kept = yield from self._clean_data(header, data, is_last)
        if kept is not None:
            self._counts.records_kept += kept[0].record_count
        return kept

    def _clean_marker(self, header: BatchHeader, data: memoryview, is_last: bool, aborted: TxnIndex) -> Steps[Kept]:
        """KIP-534: the data is removed first; then the marker gets a delete horizon; after that it is removed, too."""
        discardable, entry = self._transactions.marker(header, data)
        if entry is not None:
            aborted.append(entry)
        if not discardable or self._is_last_marker(header):
            return header, data
        if header.record_count and not header.has_delete_horizon:
            body = yield from records_of(header, data, self._limit_bytes)
            return (yield from batch_of(*filtered(header, body.data, list(body.records()), self._new_horizon_ms)))
        if header.record_count and self._now_ms < header.base_timestamp:
            return header, data
        return vacated(header) if is_last else None

    def _clean_data(self, header: BatchHeader, data: memoryview, is_last: bool) -> Steps[Kept]:
        is_aborted = self._transactions.data(header)
        if not is_aborted and header.base_offset > self._map_end:
            return header, data
        kept: list[RawRecord] = []
        tombstones = False
        if not is_aborted and header.record_count:
            body = yield from records_of(header, data, self._limit_bytes)
            expired = header.has_delete_horizon and header.base_timestamp <= self._now_ms
            for number, record in enumerate(body.records(), 1):
                if self._stays(record, expired):
                    kept.append(record)
                    tombstones = tombstones or not record.has_value
                if not number % RECORDS_PER_STEP:
                    yield 0
        horizon_ms = self._new_horizon_ms if tombstones and not header.has_delete_horizon else None
        if kept and (len(kept) < header.record_count or horizon_ms is not None):
            return (yield from batch_of(*filtered(header, body.data, kept, horizon_ms)))
        if kept:
            return header, data
        if self._is_last_data(header):
            return emptied(header) if header.record_count else (header, data)
        return vacated(header) if is_last else None

    def _stays(self, record: RawRecord, horizon_passed: bool) -> bool:
        if record.offset > self._map_end:
            return True
        if record.key is None:
            self._counts.keyless += 1
            return False
        return record.offset >= self._offsets.get(record.key) and (record.has_value or not horizon_passed)

    def _is_last_data(self, header: BatchHeader) -> bool:
        """L6: a restart needs this batch for the last sequence of a known producer."""
        entry = self._producers.get(header.producer_id) if header.producer_id >= 0 else None
        return entry is not None and bool(entry.batches) and entry.batches[-1].last_offset == header.last_offset

    def _is_last_marker(self, header: BatchHeader) -> bool:
        """L6: the marker alone holds the producer's epoch, which fences older producers."""
        entry = self._producers.get(header.producer_id)
        return entry is not None and not entry.batches and entry.epoch == header.producer_epoch
