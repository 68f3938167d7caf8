"""What a consumer holds of one partition: its position, what was fetched ahead, and how far the log reaches."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from fencepost.client.consumer.chunk import Chunk, RawFetch
from fencepost.client.core.fetch_budget import FetchBudget, Frame
from fencepost.client.core.rewind_points import RewindPoints
from fencepost.client.errors import KafkaError
from fencepost.protocol.batch_header import CorruptBatch, crc_fits, iter_headers
from fencepost.protocol.isolation import AbortedFilter
from fencepost.protocol.records import Record
from fencepost.protocol.topics import IsolationLevel, TopicPartition

_ONE_BY_ONE_AHEAD = 100
"""Records that are unpacked at once where a program takes one after the other from small batches."""


@dataclass(slots=True, eq=False, repr=False)
class PartitionState:
    """One assigned partition.

    `position` is the offset of the next record for the program (None: to be found out), `fetch_offset` the next one
    to ask the broker for, `back` where an abort goes back to: the program's last commit, or its start; `committed` what
    the group is known to have, and `seeks` how often the program has said where to go on. `turn` changes with every
    jump, so that answers to older requests are not taken for new ones.
    `leader_epoch` is of the record before the position, `fetch_epoch` of the one before `fetch_offset`; -1: not known.
    """

    partition: TopicPartition
    position: int | None = None
    fetch_offset: int = -1
    fetch_epoch: int = -1
    back: RewindPoints = field(default_factory=RewindPoints)
    committed: int | None = None
    seeks: int = 0
    reset: int | None = None  # a ListOffsets timestamp to go to, instead of the committed offset
    chunks: deque[Chunk] = field(default_factory=deque)
    left: int = 0
    buffered_bytes: int = 0
    fetched_at: int = 0  # which answer last brought something: who waited longest is asked for first
    held_back: bool = False  # nothing more is asked before all that is here was given: what comes then is an error
    keeps_all: bool = False  # also what no program may see, for `take_raw`
    paused: bool = False  # gives out nothing: `paused_by_program` of the program, or `withheld` for the group
    paused_by_program: bool = False
    withheld: bool = False
    in_request: bool = False
    turn: int = 0
    trouble: KafkaError | None = None  # what only the program can decide; a jump ends it
    retry_at: float = 0.0
    replica: int | None = None  # a follower that the leader would rather have us read from (KIP-392)
    replica_until: float = 0.0
    leader_epoch: int = -1
    validated_epoch: int = -1  # the leader's epoch at which the position was found to be part of its log
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1

    # -- going somewhere

    def jump(self, offset: int | None) -> None:
        """Go to `offset` (None: find out again); what was fetched ahead is dropped."""
        self.position = offset
        self.leader_epoch = -1
        self.reset = None
        self.trouble = None
        self.retry_at = 0.0
        self.drop_buffered()

    def start_at(self, offset: int, leader_epoch: int = -1) -> None:
        """The position was found out or chosen: an abort goes back to it, or to the records before that are unsaved.

        `leader_epoch` is that of the record before the position, as it was committed, or -1.
        """
        self.leave()
        self.jump(offset)
        self.back.begin(offset)
        self.leader_epoch = self.fetch_epoch = leader_epoch

    def leave(self) -> None:
        """The position is about to be another one."""
        self.back.leave(self.position)

    def go_back(self) -> None:
        """To where the last commit (or the start) was."""
        self.back.back()
        if self.back.point is not None and self.back.point != self.position:
            self.jump(self.back.point)

    def settled(self) -> bool:
        """Whether a commit has nothing to add."""
        return self.position == self.committed == self.back.point and not self.back.unsaved

    def drop_buffered(self) -> None:
        """Forget what was fetched ahead; it is fetched again when it is wanted."""
        for chunk in self.chunks:
            chunk.frame.give_back()
            chunk.records, chunk.at, chunk.left = [], 0, 0
        self.chunks.clear()
        self.left = self.buffered_bytes = 0
        self.fetch_offset = -1 if self.position is None else self.position
        self.fetch_epoch = self.leader_epoch
        self.held_back = False
        self.in_request = False
        self.turn += 1

    def pause(self, paused: bool) -> None:
        """The program wants nothing of this partition, or wants it again."""
        self.paused_by_program = paused
        self.paused = self.paused_by_program or self.withheld

    def withhold(self, withheld: bool) -> None:
        """The group is about to take the partition away, or has just given it and the program is being told."""
        self.withheld = withheld
        self.pause(self.paused_by_program)

    # -- asking for more

    def fetchable(self, now: float, ahead_bytes: int) -> bool:
        """Whether to ask the broker for more, when up to `ahead_bytes` may wait here."""
        return (
            self.position is not None
            and not self.paused
            and not self.in_request
            and self.trouble is None
            and self.buffered_bytes < ahead_bytes
            and self.retry_at <= now
            and not (self.held_back and self.chunks)
        )

    def available(self) -> int:
        """How many records could be taken now, at most."""
        return 0 if self.paused else self.left

    def at_hand(self) -> bool:
        """Whether the next record is unpacked and decoded already."""
        return bool(self.chunks) and self.chunks[0].at < len(self.chunks[0].records)

    def readable(self) -> bool:
        """Whether a read would bring something: records, or the error that stands in their place."""
        return bool(self.chunks) and not self.paused

    def arrive(self, answer: Any, isolation: IsolationLevel, check_crcs: bool, frame: Frame | None = None) -> None:
        """Take in a partition's part of a Fetch answer that has no error.

        A batch that is damaged ends what can be read; it is raised when the position has come to it.
        """
        self.high_watermark = answer.high_watermark
        self.last_stable_offset = answer.last_stable_offset
        self.log_start_offset = answer.log_start_offset
        buffer = answer.records
        if buffer is None or not len(buffer):
            return
        aborted: tuple[tuple[int, int], ...] = ()
        if isolation is IsolationLevel.READ_COMMITTED and answer.aborted_transactions:
            aborted = tuple((entry.producer_id, entry.first_offset) for entry in answer.aborted_transactions)
        frame = frame if frame is not None else Frame(FetchBudget(2**63), len(buffer))
        chunk = Chunk(buffer, deque(), self.fetch_offset, frame)
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
        """Find the batches that count; the leader epoch of the last one of all."""
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

    # -- giving

    def take(self, limit: int) -> list[Record]:
        """Up to `limit` records from the position on; the position moves behind them, and behind what follows unseen.

        Raises CorruptBatch where the next record cannot be read; the position stays before it.
        """
        taken: list[Record] = []
        while self.chunks and not self.paused and len(taken) < limit:
            chunk = self.chunks[0]
            if chunk.at < len(chunk.records):
                part = chunk.records[chunk.at : chunk.at + limit - len(taken)]
                self._given(chunk, len(part), part[-1].offset)
                taken = taken + part if taken else part
            elif not self._next_batch(chunk, limit - len(taken), quiet=bool(taken)):
                break
        self._skip_unseen()
        return taken

    def take_one(self) -> Record | None:
        """The next record, or None; the cheap way for programs that read one by one. Raises CorruptBatch."""
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
        """The offset of the record that was given last, while its batch is still here."""
        chunk = self.chunks[0] if self.chunks else None
        return chunk.records[chunk.at - 1].offset if chunk is not None and chunk.at else None

    def give_back_one(self, record: Record) -> None:
        """The record that `take_one` gave could not be handed on: it is the next one again."""
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
        """The next answer's part as it is, with markers and aborted batches; the position moves behind it.

        `keeps_all` must have been set before it was fetched. Raises CorruptBatch where nothing whole is left of it.
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
        """`count` records of the first chunk up to before `next_offset` were given out in some other way."""
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
        """Unpack so many of the chunk's batches that `wanted` records are there, or at least one; or go on to the next.

        False: only an error is next, and it is `quiet`. Raises CorruptBatch unless `quiet`.
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
        except CorruptBatch:
            if quiet:
                return False
            raise
        return True

    def _skip_unseen(self) -> None:
        """Pass over markers, aborted records and holes at the ends of chunks whose records are all given."""
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
            chunk.frame.give_back()
        self.leader_epoch = max(self.leader_epoch, self.fetch_epoch)

    def lag(self, isolation: IsolationLevel) -> int | None:
        """Records fetched and not given yet, and the offsets from there to what may be read; None before an answer.

        What is fetched is counted as what the program will see: no markers, nothing aborted, no holes. What is not can
        only be counted in offsets. So a reader that was given all has lag 0, also when markers follow.
        """
        end = self.last_stable_offset if isolation is IsolationLevel.READ_COMMITTED else self.high_watermark
        if self.position is None or end < 0:
            return None
        return self.left + max(end - self.fetch_offset, 0)
