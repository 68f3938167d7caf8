"""A part of one Fetch response: the batches of one partition, as the broker sent them."""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from fencepost.client.core.fetch_budget import Frame
from fencepost.protocol.batch_header import CODEC_MASK, BatchHeader, CorruptBatch
from fencepost.protocol.compression import DEFAULT_LIMIT_BYTES
from fencepost.protocol.records import Record, decode_in_pieces, decode_run, unpack_records
from fencepost.protocol.topics import TopicPartition

_BY_THEMSELVES_BYTES = 32 << 10
"""Compressed batches from this size on are unpacked in another thread."""
Batches = deque[tuple[int, BatchHeader]]


class RawFetch(NamedTuple):
    """One response's part for one partition, as the broker sent it: for readers that filter batches themselves.

    `batches` are (position in `buffer`, header), whole, in order, control batches and aborted ones included; the first
    may begin before `start_offset`. `aborted` are (producer id, first offset) as the broker listed them for
    read_committed, empty otherwise. Records at or above `next_offset` come with the next one.
    """

    partition: TopicPartition
    buffer: memoryview | bytes | bytearray
    batches: tuple[tuple[int, BatchHeader], ...]
    aborted: tuple[tuple[int, int], ...]
    start_offset: int
    next_offset: int
    last_stable_offset: int
    high_watermark: int


class _Opened:
    """The batch of which only some pieces were decoded."""

    __slots__ = ("claimed", "left", "pieces", "start")

    def __init__(self, start: int, header: BatchHeader, position: int, unpacked: bytes | bytearray) -> None:
        self.start = start
        self.left = header.record_count
        self.claimed = min(header.record_count, header.last_offset - position + 1)
        self.pieces: Iterator[list[Record]] = decode_in_pieces(unpacked, header)


class Chunk:
    """The batches of one response for one partition; they are unpacked only when the program reads their records."""

    __slots__ = (
        "aborted",
        "at",
        "batches",
        "buffer",
        "damage",
        "decoded_bytes",
        "frame",
        "left",
        "limit_bytes",
        "next_offset",
        "opened",
        "records",
        "unpacked",
    )

    def __init__(
        self, buffer: Any, batches: Batches, next_offset: int, frame: Frame, limit_bytes: int = DEFAULT_LIMIT_BYTES
    ) -> None:
        self.buffer = buffer
        self.batches = batches
        self.next_offset = next_offset
        self.frame = frame
        self.aborted: tuple[tuple[int, int], ...] = ()
        self.damage: CorruptBatch | None = None  # the error behind the batches
        self.left = 0  # records that the program has not got
        self.records: list[Record] = []
        self.at = 0
        self.unpacked: dict[
            int, bytes | bytearray
        ] = {}  # records of later batches, by their position, from other threads
        self.opened: _Opened | None = None
        self.limit_bytes = limit_bytes
        self.decoded_bytes = 0

    def decode_next(self, position: int, wanted: int) -> int:
        """Decode the next batch from `position` on, or as many as have `wanted` records; returns their leader epoch.

        Of a batch with many records it decodes only the next piece. Raises CorruptBatch and OversizedBatch, at every
        attempt.
        """
        start, header = self.batches[0]
        if header.record_count < wanted and not self.unpacked:
            records, count = decode_run(self.buffer, self.batches, position, wanted)
            if count:
                for _ in range(count):
                    self.batches.popleft()
                self.records, self.at = records, 0
                return header.partition_leader_epoch
        opened = self.opened
        if opened is None or opened.start != start:
            unpacked = self.unpacked.get(start)
            if unpacked is None:
                unpacked = unpack_records(self.buffer, start, header, self.limit_bytes)
            self.decoded_bytes += len(unpacked)
            opened = self.opened = _Opened(start, header, position, unpacked)
        try:
            records = next(opened.pieces)
        except CorruptBatch:
            self.opened = None
            raise
        opened.left -= len(records)
        if header.base_offset < position:
            records = [record for record in records if record.offset >= position]
        opened.claimed -= len(records)
        if opened.left <= 0:
            self.batches.popleft()
            self.unpacked.pop(start, None)
            self.left -= opened.claimed  # compaction may have made gaps before the position
            self.opened = None
        self.records, self.at = records, 0
        return header.partition_leader_epoch


def unpacks_apart(header: BatchHeader) -> bool:
    """Whether another thread should unpack this batch: it is compressed, and large."""
    return bool(header.attributes & CODEC_MASK) and header.size_bytes >= _BY_THEMSELVES_BYTES


def packed_ahead(chunks: Iterable[Chunk], limit: int) -> list[tuple[Chunk, int, BatchHeader]]:
    """The batches of the next `limit` records that another thread should unpack."""
    found: list[tuple[Chunk, int, BatchHeader]] = []
    for chunk in chunks:
        limit -= len(chunk.records) - chunk.at
        for start, header in chunk.batches:
            if limit <= 0:
                return found
            limit -= header.record_count
            if unpacks_apart(header) and start not in chunk.unpacked:
                found.append((chunk, start, header))
    return found
