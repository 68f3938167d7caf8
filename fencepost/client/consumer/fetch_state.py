"""A consumer's state of one partition: its position, the records fetched ahead, and the ends of the log."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from fencepost.client.consumer.chunk import Chunk, RawFetch
from fencepost.client.core.fetch_budget import FetchBudget, Frame
from fencepost.client.core.fetch_session import NO_TOPIC_ID
from fencepost.client.core.rewind_points import RewindPoints
from fencepost.client.errors import KafkaError
from fencepost.protocol.batch_header import CorruptBatch, UnreadableBatch, crc_fits, iter_headers
from fencepost.protocol.compression import DEFAULT_LIMIT_BYTES
from fencepost.protocol.isolation import AbortedFilter
from fencepost.protocol.records import Record
from fencepost.protocol.topics import IsolationLevel, TopicPartition

_TAKEN_BYTES = 64 << 20
"""After this many decompressed bytes a read returns what it has: each batch may have the full limit."""
_ONE_BY_ONE_AHEAD = 100
"""Records that are unpacked at once for a program that reads single records from small batches."""


@dataclass(slots=True, eq=False, repr=False)
class PartitionState:
    """One assigned partition.

    `position` is the offset of the next record for the program (None: to be found), `fetch_offset` the next one to
    fetch. `back` is where an abort rewinds to: the program's last commit, or its start. `committed` is the group's
    committed offset; `seeks` counts the seeks of the program, `jumps` all jumps of the position, so that responses to
    older requests are recognised.
    `topic_id` is that of the topic which the position was used for first, or zero.
    `leader_epoch` is of the record before the position, `fetch_epoch` of the one before `fetch_offset`; -1: unknown.
    """

    partition: TopicPartition
    topic_id: bytes = NO_TOPIC_ID
    position: int | None = None
    fetch_offset: int = -1
    fetch_epoch: int = -1
    back: RewindPoints = field(default_factory=RewindPoints)
    committed: int | None = None
    seeks: int = 0
    reset: int | None = None  # a ListOffsets timestamp to start at, instead of the committed offset
    chunks: deque[Chunk] = field(default_factory=deque)
    left: int = 0
    buffered_bytes: int = 0
    fetched_at: int = 0  # the number of the last response with records: the lowest is fetched first
    held_back: bool = False  # fetch no more until the program has all records here: an error follows them
    keeps_all: bool = False  # also markers and aborted records, for `take_raw`
    paused: bool = False  # gives no records: `paused_by_program`, or `withheld` for the group
    paused_by_program: bool = False
    withheld: bool = False
    in_request: bool = False
    jumps: int = 0
    error: KafkaError | None = None  # an error that the program must handle; a jump clears it
    retry_at: float = 0.0
    replica: int | None = None  # a follower that the leader prefers for this consumer (KIP-392)
    replica_until: float = 0.0
    leader_epoch: int = -1
    validated_epoch: int = -1  # the leader epoch in which the position was compared with the log
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    limit_bytes: int = DEFAULT_LIMIT_BYTES  # of one batch, after decompression

    # -- moving the position

    def jump(self, offset: int | None) -> None:
        """Set the position (None: find it again) and drop the records fetched ahead."""
        self.position = offset
        self.leader_epoch = -1
        self.reset = None
        self.error = None
        self.retry_at = 0.0
        self.drop_buffered()

    def start_at(self, offset: int, leader_epoch: int = -1) -> None:
        """The position was found or chosen: an abort rewinds to it, or to earlier records that are unsaved.

        `leader_epoch` is that of the record before the position, as it was committed, or -1.
        """
        self.leave()
        self.jump(offset)
        self.back.begin(offset)
        self.leader_epoch = self.fetch_epoch = leader_epoch

    def leave(self) -> None:
        self.back.leave(self.position)

    def go_back(self) -> None:
        """Rewind to the last commit, or to the start."""
        self.back.back()
        if self.back.point is not None and self.back.point != self.position:
            self.jump(self.back.point)

    def settled(self) -> bool:
        return self.position == self.committed == self.back.point and not self.back.unsaved

    def drop_buffered(self) -> None:
        """Drop the records fetched ahead; they are fetched again when needed."""
        for chunk in self.chunks:
            chunk.frame.release()
            chunk.records, chunk.at, chunk.left = [], 0, 0
        self.chunks.clear()
        self.left = self.buffered_bytes = 0
        self.fetch_offset = -1 if self.position is None else self.position
        self.fetch_epoch = self.leader_epoch
        self.held_back = False
        self.in_request = False
        self.jumps += 1

    def pause(self, paused: bool) -> None:
        self.paused_by_program = paused
        self.paused = self.paused_by_program or self.withheld

    def in_new_topic(self) -> "PartitionState":
        """The state of the same partition after its topic was deleted and created again: no position, no commits."""
        new = PartitionState(
            self.partition, keeps_all=self.keeps_all, withheld=self.withheld, limit_bytes=self.limit_bytes
        )
        new.pause(self.paused_by_program)
        return new

    def withhold(self, withheld: bool) -> None:
        """Give no records while the group revokes the partition, or while `on_assigned` runs."""
        self.withheld = withheld
        self.pause(self.paused_by_program)

    # -- fetching

    def fetchable(self, now: float, ahead_bytes: int) -> bool:
        """Whether to fetch more, when up to `ahead_bytes` may wait here."""
        return (
            self.position is not None
            and not self.paused
            and not self.in_request
            and self.error is None
            and self.buffered_bytes < ahead_bytes
            and self.retry_at <= now
            and not (self.held_back and self.chunks)
        )

    def available(self) -> int:
        return 0 if self.paused else self.left

    def at_hand(self) -> bool:
        """Whether the next record is unpacked and decoded already."""
        return bool(self.chunks) and self.chunks[0].at < len(self.chunks[0].records)

    def readable(self) -> bool:
        return bool(self.chunks) and not self.paused

    def arrive(self, response: Any, isolation: IsolationLevel, check_crcs: bool, frame: Frame | None = None) -> None:
        """Add a partition's part of a Fetch response without an error.

        A damaged batch ends the readable part; its error is raised when the position reaches it.
        """
        self.high_watermark = response.high_watermark
        self.last_stable_offset = response.last_stable_offset
        self.log_start_offset = response.log_start_offset
        buffer = response.records
        if buffer is None or not len(buffer):
            return
        aborted: tuple[tuple[int, int], ...] = ()
        if isolation is IsolationLevel.READ_COMMITTED and response.aborted_transactions:
            aborted = tuple((entry.producer_id, entry.first_offset) for entry in response.aborted_transactions)
        frame = frame if frame is not None else Frame(FetchBudget(2**63), len(buffer))
        chunk = Chunk(buffer, deque(), self.fetch_offset, frame, self.limit_bytes)
        chunk.aborted = aborted
        epoch = self._look_through(chunk, AbortedFilter(aborted), check_crcs)
        self.fetch_offset = chunk.next_offset
        self.fetch_epoch = epoch
        if chunk.batches or chunk.damage is not None or self.chunks:
            frame.share()
            self.chunks.append(chunk)
            self.left += chunk.left
            self.buffered_bytes += len(buffer)
            self.held_back = self.held_back or chunk.damage is not None
        else:
            self.position = chunk.next_offset
            self.leader_epoch = epoch

    def _look_through(self, chunk: Chunk, shown: AbortedFilter, check_crcs: bool) -> int:
        """Find the batches that the program may see; returns the leader epoch of the last batch of all."""
        buffer, first, epoch = chunk.buffer, self.fetch_offset, self.fetch_epoch
        view, admits, keep, keeps_all = memoryview(buffer), shown.admits, chunk.batches.append, self.keeps_all
        next_offset, left = chunk.next_offset, 0
        try:
            for entry in iter_headers(buffer):
                start, header = entry
                if check_crcs and not crc_fits(view, start, header):
                    raise CorruptBatch(f"batch at offset {header.base_offset}: the CRC is wrong")
                count, behind = header.record_count, header.next_offset
                counts = admits(header, buffer, start) and count > 0
                if behind > first:
                    if counts:
                        keep(entry)
                        left += min(count, behind - first)
                    elif keeps_all:
                        keep(entry)
                if behind > next_offset:
                    next_offset = behind
                epoch = header.partition_leader_epoch
        except CorruptBatch as wrong:
            chunk.damage = wrong
        chunk.next_offset, chunk.left = next_offset, left
        return epoch

    # -- records for the program

    def take(self, limit: int) -> list[Record]:
        """Up to `limit` records from the position on; the position moves behind them and behind invisible ones.

        Raises UnreadableBatch if the next record cannot be read; the position stays before it.
        """
        taken: list[Record] = []
        room = _TAKEN_BYTES
        while self.chunks and not self.paused and len(taken) < limit and (room > 0 or not taken):
            chunk = self.chunks[0]
            before = chunk.decoded_bytes
            if chunk.at < len(chunk.records):
                part = chunk.records[chunk.at : chunk.at + limit - len(taken)]
                self._given(chunk, len(part), part[-1].offset)
                taken = taken + part if taken else part
            elif not self._next_batch(chunk, limit - len(taken), quiet=bool(taken)):
                break
            room -= chunk.decoded_bytes - before
        self._skip_unseen()
        return taken

    def take_one(self) -> Record | None:
        """The next record, or None; the fast path for programs that read single records. Raises UnreadableBatch."""
        while self.chunks and not self.paused:
            chunk = self.chunks[0]
            at = chunk.at
            if at < len(chunk.records):
                record = chunk.records[at]
                self._given(chunk, 1, record.offset)
                if chunk.at == len(chunk.records):
                    self._skip_unseen()
                return record
            if not self._next_batch(chunk, _ONE_BY_ONE_AHEAD, quiet=False):
                break
        return None

    def last_given(self) -> int | None:
        """The offset of the record that the program got last, while its batch is still here."""
        chunk = self.chunks[0] if self.chunks else None
        return chunk.records[chunk.at - 1].offset if chunk is not None and chunk.at else None

    def give_back_one(self, record: Record) -> None:
        """The program did not get the record of `take_one`: it is the next one again."""
        chunk = self.chunks[0] if self.chunks else None
        if chunk is not None and chunk.at and chunk.records[chunk.at - 1] is record:
            chunk.at -= 1
            chunk.left += 1
            self.left += 1
            self.position = record.offset
        else:
            epoch, self.position = self.leader_epoch, record.offset
            self.drop_buffered()
            self.leader_epoch = self.fetch_epoch = epoch

    def take_raw(self) -> RawFetch | None:
        """The next response's part unchanged, with markers and aborted batches; the position moves behind it.

        `keeps_all` must have been set before it was fetched. Raises CorruptBatch if no complete batch is left in it.
        """
        if not self.readable():
            return None
        chunk = self.chunks[0]
        if not chunk.batches and chunk.damage is not None:
            raise chunk.damage
        start = self.position or 0
        given = RawFetch(
            self.partition,
            chunk.buffer,
            tuple(chunk.batches),
            chunk.aborted,
            start,
            chunk.next_offset,
            self.last_stable_offset,
            self.high_watermark,
        )
        self.given_until(chunk, chunk.next_offset, chunk.left)
        return given

    def given_until(self, chunk: Chunk, next_offset: int, count: int) -> None:
        """The program got `count` records of the first chunk, below `next_offset`, in another form."""
        batches = chunk.batches
        while batches and batches[0][1].last_offset < next_offset:
            self.leader_epoch = batches.popleft()[1].partition_leader_epoch
        count = min(count, chunk.left) if batches else chunk.left
        chunk.left -= count
        self.left -= count
        self.position = next_offset
        self._skip_unseen()

    def _given(self, chunk: Chunk, count: int, last_offset: int) -> None:
        chunk.at += count
        chunk.left -= count
        self.left -= count
        self.position = last_offset + 1

    def _next_batch(self, chunk: Chunk, wanted: int, *, quiet: bool) -> bool:
        """Unpack batches of the chunk until there are `wanted` records, at least one batch; or move to the next chunk.

        False: only an error is next, and it is `quiet`. Raises UnreadableBatch unless `quiet`.
        """
        try:
            if chunk.batches:
                left = chunk.left
                self.leader_epoch = chunk.decode_next(self.position or 0, wanted)
                self.left += chunk.left - left
            elif chunk.damage is not None:
                raise chunk.damage
            else:
                self._skip_unseen()
        except UnreadableBatch:
            if quiet:
                return False
            raise
        return True

    def _skip_unseen(self) -> None:
        """Skip markers, aborted records and gaps at the ends of chunks without records for the program."""
        chunks = self.chunks
        while chunks:
            chunk = chunks[0]
            if chunk.batches or chunk.at < len(chunk.records):
                return
            self.position = max(self.position or 0, chunk.next_offset)
            if chunk.damage is not None:
                return
            chunks.popleft()
            self.buffered_bytes -= len(chunk.buffer)
            chunk.frame.release()
        self.leader_epoch = max(self.leader_epoch, self.fetch_epoch)

    def lag(self, isolation: IsolationLevel) -> int | None:
        """Fetched records that the program has not got, plus the offsets to the readable end; None before a response.

        Fetched records are counted without markers, aborted records and gaps. The rest can only be counted in offsets.
        So a program that got all records has lag 0, also when markers follow.
        """
        end = self.last_stable_offset if isolation is IsolationLevel.READ_COMMITTED else self.high_watermark
        if self.position is None or end < 0:
            return None
        return self.left + max(end - self.fetch_offset, 0)
