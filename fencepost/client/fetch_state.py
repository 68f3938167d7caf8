"""What a consumer holds of one partition: its position, what was fetched ahead, and how far the log reaches."""

from collections import deque
from typing import Any

from fencepost.protocol.batch_header import BatchHeader, CorruptBatch, check_crc, iter_headers
from fencepost.protocol.isolation import AbortedFilter
from fencepost.protocol.records import Record, decode_records
from fencepost.protocol.topics import IsolationLevel, TopicPartition

CHUNKS_AHEAD = 2


class Chunk:
    """What one answer brought for one partition; batches are unpacked only when their records are wanted."""

    __slots__ = ("at", "batches", "buffer", "next_offset", "records")

    def __init__(self, buffer: memoryview, batches: deque[tuple[int, BatchHeader]], next_offset: int) -> None:
        self.buffer = buffer
        self.batches = batches
        self.next_offset = next_offset
        self.records: list[Record] = []
        self.at = 0

    @property
    def exhausted(self) -> bool:
        """Nothing is left to give."""
        return not self.batches and self.at >= len(self.records)


class PartitionState:
    """One assigned partition.

    `position` is the offset of the next record for the program (None: to be found out), `fetch_offset` the next one
    to ask the broker for, `rewind_point` where the program's last commit (or its start) was. `turn` changes with
    every jump, so that answers to older requests are not taken for new ones.
    """

    __slots__ = (
        "chunks",
        "fetch_offset",
        "high_watermark",
        "in_request",
        "last_stable_offset",
        "leader_epoch",
        "log_start_offset",
        "partition",
        "paused",
        "position",
        "reset",
        "retry_at",
        "rewind_point",
        "turn",
    )

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.position: int | None = None
        self.fetch_offset = -1
        self.rewind_point: int | None = None
        self.reset: int | None = None  # a ListOffsets timestamp to go to, instead of the committed offset
        self.chunks: deque[Chunk] = deque()
        self.paused = False
        self.in_request = False
        self.turn = 0
        self.retry_at = 0.0
        self.leader_epoch = -1
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.log_start_offset = -1

    def jump(self, offset: int | None) -> None:
        """Go to `offset` (None: find out again); what was fetched ahead is dropped."""
        self.position = offset
        self.fetch_offset = -1 if offset is None else offset
        self.chunks.clear()
        self.turn += 1
        self.in_request = False
        self.reset = None
        self.retry_at = 0.0

    def start_at(self, offset: int) -> None:
        """The position was found out; it is also where an aborted transaction goes back to."""
        self.jump(offset)
        self.rewind_point = offset

    def fetchable(self, now: float) -> bool:
        """Whether to ask the broker for more."""
        return (
            self.position is not None
            and not self.paused
            and not self.in_request
            and len(self.chunks) < CHUNKS_AHEAD
            and self.retry_at <= now
        )

    def available(self) -> int:
        """How many records could be taken now, at most."""
        if self.paused:
            return 0
        return sum(
            len(chunk.records) - chunk.at + sum(header.record_count for _, header in chunk.batches)
            for chunk in self.chunks
        )

    def arrive(self, answer: Any, isolation: IsolationLevel, check_crcs: bool) -> None:
        """Take in a partition's part of a Fetch answer that has no error. Raises CorruptBatch."""
        self.high_watermark = answer.high_watermark
        self.last_stable_offset = answer.last_stable_offset
        self.log_start_offset = answer.log_start_offset
        buffer = answer.records
        if buffer is None or not len(buffer):
            return
        aborted = answer.aborted_transactions
        if isolation is IsolationLevel.READ_UNCOMMITTED or aborted is None:
            admits = AbortedFilter(None).admits
        else:
            admits = AbortedFilter([(entry.producer_id, entry.first_offset) for entry in aborted]).admits
        batches: deque[tuple[int, BatchHeader]] = deque()
        next_offset = self.fetch_offset
        for start, header in iter_headers(buffer):
            if check_crcs and not check_crc(buffer, start, header):
                raise CorruptBatch(f"{self.partition}, batch at offset {header.base_offset}: the CRC is wrong")
            if admits(header, buffer, start) and header.record_count and header.last_offset >= self.fetch_offset:
                batches.append((start, header))
            next_offset = max(next_offset, header.next_offset)
        self.fetch_offset = next_offset
        if batches or self.chunks:
            self.chunks.append(Chunk(buffer, batches, next_offset))
        else:
            self.position = next_offset

    def take(self, limit: int) -> list[Record]:
        """Up to `limit` records from the position on; the position moves behind them. Raises CorruptBatch."""
        taken: list[Record] = []
        while self.chunks and not self.paused:
            chunk = self.chunks[0]
            if chunk.at < len(chunk.records):
                if len(taken) >= limit:
                    break
                part = chunk.records[chunk.at : chunk.at + limit - len(taken)]
                chunk.at += len(part)
                taken += part
                self.position = part[-1].offset + 1
            elif chunk.batches:
                if len(taken) >= limit:
                    break
                start, header = chunk.batches[0]
                records = decode_records(chunk.buffer, start, header)
                chunk.batches.popleft()
                if self.position is not None and header.base_offset < self.position:
                    records = [record for record in records if record.offset >= (self.position or 0)]
                chunk.records, chunk.at = records, 0
                self.leader_epoch = header.partition_leader_epoch
            else:
                self.chunks.popleft()
                self.position = max(self.position or 0, chunk.next_offset)
        return taken

    def take_one(self) -> Record | None:
        """The next record, or None; the cheap way for programs that read one by one. Raises CorruptBatch."""
        chunks = self.chunks
        if not chunks or self.paused:
            return None
        chunk = chunks[0]
        if chunk.at + 1 < len(chunk.records):
            record = chunk.records[chunk.at]
            chunk.at += 1
            self.position = record.offset + 1
            return record
        taken = self.take(1)
        return taken[0] if taken else None

    def lag(self, isolation: IsolationLevel) -> int | None:
        """How many offsets lie between the position and what may be read; None before the first answer."""
        end = self.last_stable_offset if isolation is IsolationLevel.READ_COMMITTED else self.high_watermark
        if self.position is None or end < 0:
            return None
        return max(end - self.position, 0)
