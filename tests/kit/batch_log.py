"""A partition of a fake broker: real batches, and how a broker reads them."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Self

from fencepost.protocol.batch_header import read_header
from fencepost.protocol.compression import Compression
from fencepost.protocol.control_records import end_txn_marker
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api01_fetch import AbortedTransaction, PartitionData
from fencepost.protocol.record_batch import build_batch
from fencepost.protocol.records import decode_records
from fencepost.protocol.topics import IsolationLevel


@dataclass
class BatchLog:
    """Offsets are given out as batches are appended."""

    batches: list[bytes] = field(default_factory=list)
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    """(Producer id, first offset, the marker's offset)."""
    start: int = 0
    end: int = 0
    stable: int | None = None
    """The last stable offset where it is not the end."""

    # -- writing

    def write(self, values: Iterable[bytes], *, time_ms: int | None = None, **more: Any) -> Self:
        """One batch of records without keys, each at the millisecond of its offset where there is no `time_ms`."""
        end = self.end
        made = [(end + n if time_ms is None else time_ms, None, value, ()) for n, value in enumerate(values)]
        return self.raw(build_batch(made, base_offset=end, **more))

    def data(
        self, *values: bytes, producer_id: int = -1, codec: Compression = Compression.NONE, time_ms: int = 0
    ) -> Self:
        """One batch; part of a transaction where a producer is named."""
        producer = {"producer_id": producer_id, "producer_epoch": 0, "transactional": producer_id >= 0}
        return self.write(values, time_ms=time_ms, compression=codec, **producer)

    def marker(self, producer_id: int, commit: bool) -> Self:
        return self.raw(end_txn_marker(producer_id, 0, commit, 0, 0, base_offset=self.end))

    def transaction(self, values: Iterable[bytes], producer_id: int, commit: bool, **more: Any) -> Self:
        """A batch and its marker."""
        first = self.end
        self.write(values, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True, **more)
        if not commit:
            self.aborted.append((producer_id, first, self.end))
        return self.marker(producer_id, commit)

    def aborted_run(self, producer_id: int, *values: bytes) -> Self:
        return self.transaction(values, producer_id, False, time_ms=0)

    def raw(self, batch: bytes | bytearray) -> Self:
        self.batches.append(bytes(batch))
        self.end = read_header(batch).next_offset
        return self

    def hole(self, count: int) -> Self:
        """Offsets that compaction left empty."""
        self.end += count
        return self

    # -- reading

    def end_for(self, isolation: int) -> int:
        """Where a reader's log ends."""
        return self.end if self.stable is None or isolation != IsolationLevel.READ_COMMITTED else self.stable

    def offset_at(self, timestamp: int, isolation: int) -> int:
        """What ListOffsets answers: the start (-2), the end (-1), or the first record so late; -1 without one."""
        end = self.end_for(isolation)
        if timestamp < 0:
            return {-1: end, -2: self.start}[timestamp]
        records = (record for batch in self.batches for record in decode_records(batch, 0, read_header(batch)))
        found = next((record.offset for record in records if record.timestamp_ms >= timestamp), -1)
        return found if found < end else -1

    def fetched(self, asked: Any, isolation: int, room: int, *, first: bool = True) -> PartitionData:
        """What Fetch answers: whole batches from the offset on; the first of an answer whatever its size (KIP-74)."""
        part = PartitionData(
            partition_index=asked.partition, high_watermark=self.end, log_start_offset=self.start, error_code=0,
            last_stable_offset=self.end_for(IsolationLevel.READ_COMMITTED), aborted_transactions=None, records=b"",
        )  # fmt: skip
        if not self.start <= asked.fetch_offset <= self.end:
            part.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            return part
        found, last = b"", asked.fetch_offset
        for batch in self.batches:
            header = read_header(batch)
            if header.last_offset < asked.fetch_offset:
                continue
            fits = len(found) + len(batch) <= min(asked.partition_max_bytes, room)
            if header.last_offset >= self.end_for(isolation) or not (fits or (first and not found)):
                break
            found, last = found + batch, header.last_offset
        part.records = found
        if isolation == IsolationLevel.READ_COMMITTED:
            part.aborted_transactions = [
                AbortedTransaction(producer_id=producer, first_offset=begin)
                for producer, begin, marker in self.aborted
                if begin <= last and marker >= asked.fetch_offset
            ]
        return part
