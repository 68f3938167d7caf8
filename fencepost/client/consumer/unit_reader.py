"""Reads whole transactions: each committed one of the assigned partitions as one unit, never a part of it.

`core.transaction_assembler` says how units are assembled, and what the logs do not show. Markers decide, at any
isolation level; the level only decides when records arrive. With read_committed they arrive once no older transaction
is open below them. With read_uncommitted they arrive at once: the reader gives a transaction as soon as its own markers
have arrived, and holds the records of open ones meanwhile.
"""

import logging
from collections.abc import Iterator, Mapping
from typing import Any, Generic

import anyio
import anyio.lowlevel

from fencepost.client.consumer.chunk import RawFetch
from fencepost.client.consumer.consumed import ConsumerRecord, deserialized
from fencepost.client.consumer.fetch_state import PartitionState
from fencepost.client.consumer.read_errors import unreadable
from fencepost.client.consumer.reader import Reader
from fencepost.client.consumer.spill import Full, Spill
from fencepost.client.consumer.whole_transaction import WholeTransaction
from fencepost.client.core.group_types import CommittedOffset
from fencepost.client.core.offset_metadata import METADATA_BYTES_MAX
from fencepost.client.core.rewind_points import UnitRewindPoint
from fencepost.client.core.transaction_assembler import Assembler, Piece, Place, Unit
from fencepost.client.errors import ConfigError, KafkaError
from fencepost.client.key_value import K, V
from fencepost.client.network.cluster import Cluster
from fencepost.protocol.batch_header import BatchHeader, CorruptBatch, UnreadableBatch, read_header
from fencepost.protocol.control_records import ControlType, control_type
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.records import Record, decode_in_pieces, unpack_records
from fencepost.protocol.topics import IsolationLevel, TopicPartition

_LOG = logging.getLogger(__name__)


class TransactionTooLargeError(KafkaError):
    """Incomplete transactions have more than `max_bytes`; `overflow="spill"` uses a temporary file."""


class UnitReader(Generic[K, V]):
    """The part of a consumer that gives whole transactions, and finds offsets to commit that cut none of them."""

    def __init__(self, cluster: Cluster, reader: Reader[K, V], max_bytes: int, overflow: str) -> None:
        if overflow not in ("error", "spill"):
            raise ConfigError(f"overflow: {overflow!r} must be 'error' or 'spill'")
        if reader.config.enable_auto_commit:
            raise ConfigError(
                "transactions() needs enable_auto_commit=False: call commit() after you have processed a transaction"
            )
        self._policy = cluster.policy
        self._reader = reader
        self._limit = max_bytes
        self._assembler = Assembler()
        self._spill = Spill(max_bytes, to_file=overflow == "spill")
        self._known: dict[TopicPartition, tuple[PartitionState, int]] = {}
        self._begun: dict[TopicPartition, int] = {}
        self._waiting: list[tuple[RawFetch, PartitionState, int]] = []
        self._in_hand: Unit | None = None
        self._base = UnitRewindPoint({})
        self._offer: UnitRewindPoint | None = None  # the base after the commit of the last `offsets`
        self._offered: dict[TopicPartition, Place] = {}
        self._saved: dict[TopicPartition, Place] = {}
        self._logged_left_out = 0
        reader.keep_all()
        for state in self._states().values():
            if state.position is not None:
                state.jump(state.position)  # what was fetched before has no markers
        reader.fetcher.wake()

    @property
    def left_out(self) -> int:
        return self._assembler.left_out

    @property
    def held_bytes(self) -> int:
        return self._assembler.held_bytes

    @property
    def spilled_bytes(self) -> int:
        return self._spill.spilled_bytes

    async def next(self) -> WholeTransaction[K, V]:
        """The next unit. The one before is processed."""
        reader = self._reader
        reader.rest()
        self._done_with(self._in_hand)
        self._in_hand = None
        while True:
            await self._follow_assignment()
            too_large = self._feed_waiting()
            await self._ask_for_ends()
            if reader.lookups:
                await self._look_up()
            await anyio.lowlevel.checkpoint()
            await reader.group.wait_for_revocation()
            reader.progress.check()
            if self._has_changed():
                continue
            # No await from here on: a cancelled read has either given a unit or not taken it.
            unit = self._assembler.ready() if self._all_placed() else None
            self._drop()
            if unit is not None:
                self._in_hand = unit
                for base in self._bases():
                    base.given = True
                reader.give()
                return WholeTransaction(self._records, unit)
            if too_large is not None:
                raise too_large
            if not self._assembler.wants_fence():
                await self._read_more()

    async def _read_more(self) -> None:
        """Queue one more response; in its own function, so that no variable holds it during the next wait."""
        raw = await self._reader.next_raw()
        state = self._states()[raw.partition]
        self._waiting.append((raw, state, state.jumps))
        self._reader.rest()

    # -- partitions

    def _states(self) -> Mapping[TopicPartition, PartitionState]:
        return self._reader.fetcher.states

    def _all_placed(self) -> bool:
        return all(partition in self._known for partition in self._states())

    def _has_changed(self) -> bool:
        """Whether a partition was revoked or has jumped: then the complete units must be checked again."""
        states = self._states()
        return any(states.get(p) is not state or state.jumps != jumps for p, (state, jumps) in self._known.items())

    async def _follow_assignment(self) -> None:
        """Start partitions that were assigned or have jumped, and stop those that were revoked."""
        states = self._states()
        for partition, (state, jumps) in list(self._known.items()):
            if states.get(partition) is state and state.jumps != jumps and state.position == self._reached(partition):
                # Only records fetched ahead were dropped, to make room: earlier ones stay as they are.
                self._known[partition] = (state, state.jumps)
                self._waiting = [(raw, its, its.jumps if its is state else at) for raw, its, at in self._waiting]
            elif states.get(partition) is not state or state.jumps != jumps:
                del self._known[partition]
                if states.get(partition) is not state:
                    for base in self._bases():
                        base.safe.pop(partition, None)  # another member may have read it meanwhile
                    self._saved.pop(partition, None)
                self._assembler.stop(partition)
        self._waiting = [
            (raw, state, jumps)
            for raw, state, jumps in self._waiting
            if states.get(raw.partition) is state and state.jumps == jumps
        ]
        for partition, state in list(states.items()):
            if partition in self._known:
                if not state.chunks and state.position is not None and not self._is_waiting(partition):
                    self._assembler.advance(partition, state.position)
            elif state.position is not None:
                await self._begin(partition, state)

    def _reached(self, partition: TopicPartition) -> int | None:
        ends = [raw.next_offset for raw, _, _ in self._waiting if raw.partition == partition]
        return ends[-1] if ends else self._assembler.frontier(partition)

    def _is_waiting(self, partition: TopicPartition) -> bool:
        return any(raw.partition == partition for raw, _, _ in self._waiting)

    async def _begin(self, partition: TopicPartition, state: PartitionState) -> None:
        jumps = state.jumps
        starts = [raw.start_offset for raw, its, at in self._waiting if its is state and at == jumps]
        start = starts[0] if starts else state.position
        assert start is not None
        safe = self._base.safe.get(partition)
        note = safe.metadata if safe is not None and safe.offset == start else None
        if note is None and self._reader.has_group:
            asked = self._reader.group.fetch_committed
            found = await self._policy.run(lambda: asked([partition]), what="committed offsets")
            committed = found.get(partition)
            if committed is not None:
                self._saved[partition] = Place(committed.offset, committed.metadata)
            note = committed.metadata if committed is not None and committed.offset == start else None
            if self._states().get(partition) is not state or state.jumps != jumps:
                return
        self._assembler.start(partition, start, note)
        for base in self._bases():
            if not base.given or partition not in base.safe:  # an abort takes back what was given before a seek
                base.safe[partition] = Place(start, note or "")
        self._begun[partition] = start
        self._known[partition] = (state, jumps)

    # -- fetched batches

    def _feed_waiting(self) -> TransactionTooLargeError | None:
        """Feed fetched batches to the assembler while there is room; returns the error if there is none.

        The rest waits for the next round: given units make room. No batch is fed twice.
        """
        waiting, self._waiting = self._waiting, []
        for number, (raw, state, jumps) in enumerate(waiting):
            if self._known.get(raw.partition) != (state, jumps):
                self._waiting.append((raw, state, jumps))  # its partition starts in the next round
                continue
            for fed, (at, header) in enumerate(raw.batches):
                try:
                    if header.next_offset > raw.start_offset:
                        self._feed(raw, at, header)
                except (CorruptBatch, TransactionTooLargeError, OSError) as wrong:
                    rest = raw._replace(batches=raw.batches[fed:])
                    self._waiting += [(rest, state, jumps), *waiting[number + 1 :]]
                    if isinstance(wrong, TransactionTooLargeError):
                        return wrong
                    if isinstance(wrong, OSError):
                        raise
                    raise unreadable(raw.partition, header.base_offset, wrong) from wrong
            self._assembler.advance(raw.partition, raw.next_offset)
        return None

    def _feed(self, raw: RawFetch, at: int, header: BatchHeader) -> None:
        if header.is_control:
            kind = control_type(raw.buffer, at, header)
            if kind in (ControlType.COMMIT, ControlType.ABORT):
                self._assembler.end(
                    raw.partition,
                    header.base_offset,
                    header.producer_id,
                    header.producer_epoch,
                    commit=kind is ControlType.COMMIT,
                )
                self._warn_of_left_out(raw.partition, header.base_offset)
            return
        data = memoryview(raw.buffer)[at : at + header.size_bytes]
        held = self._hold(data, header, raw.partition)
        piece = Piece(raw.partition, header.base_offset, header.next_offset, header.size_bytes, held)
        if not self._assembler.add(
            piece,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            transactional=header.is_transactional,
        ):
            self._spill.free(held)

    def _warn_of_left_out(self, partition: TopicPartition, offset: int) -> None:
        if self._assembler.left_out > self._logged_left_out:
            self._logged_left_out = self._assembler.left_out
            _LOG.warning(
                "%s: skipped the transaction that ends at offset %d: it began before the start position",
                partition,
                offset,
            )

    def _hold(self, data: memoryview, header: BatchHeader, partition: TopicPartition) -> Any:
        try:
            return self._spill.put(data)
        except Full:
            largest = self._assembler.largest()
            who, where, first = (header.producer_id, header.producer_epoch), partition, header.base_offset
            if largest is not None:
                who, where, first = (largest.producer_id, largest.epoch), largest.partition, largest.first_offset
            raise TransactionTooLargeError(
                f"incomplete transactions have more than {self._limit} bytes (max_bytes): most are of producer {who[0]}"
                f" epoch {who[1]}, in {where} from offset {first}. Raise max_bytes, or give overflow='spill'"
            ) from None

    async def _ask_for_ends(self) -> None:
        """The fence: fetch the partitions' ends. A reader at ends from after a marker has the whole transaction."""
        if not self._assembler.wants_fence():
            return
        number = self._assembler.asked()
        try:
            positions = self._reader.committer.positions
            partitions = self._assembler.partitions
            ends = await positions.end_offsets(*partitions, isolation=IsolationLevel.READ_UNCOMMITTED)
        except BaseException:
            self._assembler.not_asked()
            raise
        self._assembler.fence(number, ends)

    def _drop(self) -> None:
        for piece in self._assembler.dropped:
            self._spill.free(piece.held)
        self._assembler.dropped.clear()

    def _done_with(self, unit: Unit | None) -> None:
        for share in unit.shares if unit is not None else ():
            for piece in share.pieces:
                self._spill.free(piece.held)

    async def _look_up(self) -> None:
        """Wait for the look-ups of the next unit's deserializers. A cancelled wait leaves it the next unit."""
        unit = self._assembler.next_unit() if self._all_placed() else None
        if unit is not None:
            await self._reader.lookups.look_up(
                (piece.partition.topic, headers, key, value)
                for share in unit.shares
                for piece in share.pieces
                for _, _, key, value, headers in self._packed_records(piece)
            )

    def _records(self, piece: Piece) -> Iterator[ConsumerRecord[K, V]]:
        for record in self._packed_records(piece):
            yield deserialized(piece.partition, record, self._reader.config)

    def _packed_records(self, piece: Piece) -> Iterator[Record]:
        data = self._spill.get(piece.held)
        start = self._begun.get(piece.partition, 0)  # the first batch may begin before the start of reading
        header = read_header(data)
        try:
            unpacked = unpack_records(data, 0, header, self._reader.config.max_decompressed_bytes)
            for records in decode_in_pieces(unpacked, header):
                yield from (record for record in records if record.offset >= start)
        except UnreadableBatch as wrong:
            raise unreadable(piece.partition, header.base_offset, wrong) from wrong

    # -- for the consumer

    @property
    def given(self) -> bool:
        return self._base.given

    def _bases(self) -> tuple[UnitRewindPoint, ...]:
        return (self._base,) if self._offer is None else (self._base, self._offer)

    def offsets(self) -> dict[TopicPartition, CommittedOffset]:
        """The offsets to commit, with metadata for each partition; no offset cuts a transaction.

        Raises KafkaError (OFFSET_METADATA_TOO_LARGE) if the metadata is larger than brokers accept.
        """
        self._offered = self._assembler.places()
        self._offer = UnitRewindPoint({**self._base.safe, **self._offered})
        found = {}
        for partition, place in self._offered.items():
            if len(place.metadata) > METADATA_BYTES_MAX:
                raise KafkaError(
                    f"{partition}: too many transactions ended after the open one at offset {place.offset}: the offset"
                    f" metadata has {len(place.metadata)} bytes, over {METADATA_BYTES_MAX}. Commit once it has ended",
                    code=ErrorCode.OFFSET_METADATA_TOO_LARGE,
                )
            state = self._known[partition][0]
            if place != self._saved.get(partition) and self._states().get(partition) is state:
                found[partition] = CommittedOffset(place.offset, state.leader_epoch, place.metadata)
        return found | self._sought()

    def _sought(self) -> dict[TopicPartition, CommittedOffset]:
        """Positions that the program has sought and not read from yet; they need no metadata."""
        found = {}
        for partition, state in self._states().items():
            at = state.position
            if at is None or at in (state.committed, self._reached(partition)):
                continue
            if self._known.get(partition) != (state, state.jumps):
                found[partition] = CommittedOffset(at)
        return found

    def committed(self) -> None:
        """The last `offsets` are committed; later units and seeks stay after them."""
        if self._offer is not None:
            self._base, self._offer = self._offer, None
        self._saved.update(self._offered)

    def rewind(self) -> None:
        """Give all units since the last commit again."""
        if self._base.given:
            self._base.given = False
            for partition, (state, _) in self._known.items():
                if partition in self._base.safe:
                    state.start_at(self._base.safe[partition].offset)

    def forget(self) -> None:
        """It is unknown what is committed: fetch the committed offsets again."""
        self._base, self._offer = UnitRewindPoint({}), None
        self._saved.clear()

    def close(self) -> None:
        self._spill.close()
