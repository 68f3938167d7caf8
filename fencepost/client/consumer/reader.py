"""Gives a consumer's records to the program: batches, single records or whole responses."""

import weakref
from collections.abc import AsyncIterator, Mapping
from contextvars import ContextVar
from functools import partial
from typing import Any, Generic, cast

import anyio
import anyio.lowlevel
import anyio.to_thread

from fencepost.client.config import ConsumerConfig
from fencepost.client.consumer.chunk import Chunk, RawFetch, packed_ahead
from fencepost.client.consumer.committer import Committer
from fencepost.client.consumer.consumed import ConsumerBatch, ConsumerRecord, as_consumed, deserialized
from fencepost.client.consumer.fetch_state import PartitionState
from fencepost.client.consumer.fetcher import Fetcher
from fencepost.client.consumer.read_errors import DeserializationError, ReadError, unreadable
from fencepost.client.core.group_types import CommittedOffset
from fencepost.client.group.group_client import GroupClient
from fencepost.client.key_value import K, V
from fencepost.client.lookups import Lookups
from fencepost.client.network.cluster import Cluster
from fencepost.protocol.batch_header import BatchHeader, UnreadableBatch
from fencepost.protocol.records import Record, unpack_records
from fencepost.protocol.topics import TopicPartition

_FAIRNESS = 64
_UNPACKED_AT_ONCE = 4
_UNPACKED_BYTES = 64 << 20
"""No further batch is unpacked ahead after this many bytes: each may have the full limit."""
_IN_HAND: ContextVar["weakref.ref[Reader[Any, Any]] | None"] = ContextVar("fencepost_reader_in_hand", default=None)


def committer_in_hand() -> Committer | None:
    """The committer of the group consumer whose batch this task processes, if any."""
    reference = _IN_HAND.get()
    reader = reference() if reference is not None else None
    return reader.committer if reader is not None and reader.has_group and not reader.progress.resting else None


class Reader(Generic[K, V]):
    """The part of a consumer that gives records. They are in the program's hand until its next read."""

    def __init__(
        self, cluster: Cluster, config: ConsumerConfig, group: GroupClient, fetcher: Fetcher, committer: Committer
    ) -> None:
        self._cluster = cluster
        self.config = config
        self.group = group
        self.fetcher = fetcher
        self.committer = committer
        self.progress = committer.progress
        self.has_group = config.group_id is not None
        self.is_plain = config.key_deserializer is None and config.value_deserializer is None
        self.lookups = Lookups(config.key_deserializer, config.value_deserializer)
        self.in_a_row = 0
        """How many single records in a row came from the current partition."""
        self.given = 0
        """How many single records were given since other tasks could run."""
        self.prefix: tuple[str, int] = ("", 0)
        """Topic and partition of the current partition."""
        self._turn = 0
        self._reference = weakref.ref(self)

    def batches(self, limit: int, max_wait: float) -> AsyncIterator[ConsumerBatch[K, V]]:
        return _Batches(self, limit, max_wait)

    def records(self) -> AsyncIterator[ConsumerRecord[K, V]]:
        return _Records(self)

    async def next_raw(self) -> RawFetch:
        """One partition's part of a response as the broker sent it, for readers that filter batches themselves.

        `keep_all` must have been called before the first read. The position moves behind it; it is in hand until the
        next read.
        """
        await self.done_with_last()
        while True:
            await self.wait_available(1)
            await anyio.lowlevel.checkpoint()
            await self.group.wait_for_revocation()
            self.progress.check()
            for state in self.in_turn():
                try:
                    given = state.take_raw()
                except UnreadableBatch as wrong:
                    raise self.unreadable(state, wrong) from wrong
                if given is not None:
                    self.fetcher.wake()
                    self.give()
                    return given

    def keep_all(self) -> None:
        """From now on keep markers and aborted records for `next_raw`, of all present and future partitions."""
        self.fetcher.keeps_all = True
        for state in self.fetcher.states.values():
            state.keeps_all = True

    async def next_batch(self, limit: int, max_wait: float) -> ConsumerBatch[K, V]:
        """Up to `limit` records, at least one. Raises ReadError if reading cannot continue."""
        await self.done_with_last()
        while True:
            await self.wait_available(1)
            if max_wait and self._available() < limit:
                with anyio.move_on_after(max_wait):
                    await self.wait_available(limit)
            await self.unpack_ahead(limit, self.order())
            await anyio.lowlevel.checkpoint()
            await self.group.wait_for_revocation()
            self.progress.check()
            runs = self.take(limit, self.in_turn())
            if runs:
                break
        return await self.give_batch(runs)

    async def give_batch(self, runs: list[tuple[TopicPartition, list[Record]]]) -> ConsumerBatch[K, V]:
        """The taken records as a batch, once their deserializers know the schemas. A cancellation puts them back."""
        self.give()
        await self._look_up(runs)
        return ConsumerBatch(runs, self.config)

    async def _look_up(self, runs: list[tuple[TopicPartition, list[Record]]]) -> None:
        """Wait for the look-ups of the deserializers. A cancellation puts the taken records back."""
        if not self.lookups:
            return
        states = self.fetcher.states
        taken = {partition: (states[partition], states[partition].position) for partition, _ in runs}
        try:
            await self.lookups.look_up(
                (partition.topic, headers, key, value)
                for partition, records in runs
                for _, _, key, value, headers in records
            )
        except BaseException:
            for partition, records in runs:
                self.fetcher.metrics.records_consumed -= len(records)
                state, position = taken[partition]
                if state.position == position:  # the program has sought nowhere else meanwhile
                    state.jump(records[0].offset)
            self.fetcher.wake()
            raise

    async def done_with_last(self) -> None:
        """The program reads again: it has processed the records in hand."""
        self._cluster.check_loop()
        self.rest()
        self.fetcher.ends = None
        self.progress.gave_one = False
        await self.group.wait_for_revocation()
        if self.config.enable_auto_commit:
            await self.committer.commit_if_due()
        if self.progress.tracks_handled:
            self.progress.handled = self.progress.uncommitted()

    async def next_record(self) -> ConsumerRecord[K, V]:
        """The next record on the slow path; `_Records` takes the fast one while nothing else is due."""
        await self.done_with_last()
        while True:
            self.given += 1
            if self.given >= _FAIRNESS:
                self.given = 0
                await anyio.lowlevel.checkpoint()
            self.progress.check()
            state = self.progress.current
            record = None
            if state is not None and self.in_a_row < self.config.max_poll_records:
                if not state.at_hand():
                    await self.unpack_ahead(1, [state])
                await self.group.wait_for_revocation()
                record = self._one_of(state)
            if record is None:
                await self.unpack_ahead(1, self.order())
                await self.group.wait_for_revocation()
                state, record = self._one_of_another()
            if state is not None and record is not None:
                self.in_a_row += 1
                self.give()
                self.progress.gave_one = True
                self.fetcher.metrics.records_consumed += 1
                await self._look_up([(state.partition, [record])])
                return self._deserialized(state, record)
            await self.wait_available(1)

    def _deserialized(self, state: PartitionState, record: Record) -> ConsumerRecord[K, V]:
        """The record for the program; if deserializing fails, it is the next one again."""
        try:
            return deserialized(state.partition, record, self.config)
        except DeserializationError:
            state.give_back_one(record)
            raise

    def _one_of(self, state: PartitionState) -> Record | None:
        if self.fetcher.states.get(state.partition) is not state:
            return None
        chunks = len(state.chunks)
        try:
            record = state.take_one()
        except UnreadableBatch as wrong:
            raise self.unreadable(state, wrong) from wrong
        if len(state.chunks) != chunks:
            self.fetcher.wake()
        return record

    def _one_of_another(self) -> tuple[PartitionState | None, Record | None]:
        """Move to the next partition with records, so that a busy one does not starve the others."""
        for state in self.in_turn():
            record = self._one_of(state)
            if record is not None:
                self.progress.current = state
                self.in_a_row = 0
                self.prefix = (state.partition.topic, state.partition.partition)
                return state, record
        return None, None

    def order(self) -> list[PartitionState]:
        """The partitions in reading order: each read begins with another one, so that a busy one starves none."""
        states = list(self.fetcher.states.values())
        first = (self._turn + 1) % max(len(states), 1)
        return states[first:] + states[:first]

    def in_turn(self) -> list[PartitionState]:
        """The partitions in the order of this read."""
        states = self.order()
        self._turn = (self._turn + 1) % max(len(states), 1)
        return states

    def unreadable(self, state: PartitionState, wrong: UnreadableBatch) -> ReadError:
        return unreadable(state.partition, state.position or 0, wrong)

    def give(self) -> None:
        """The program gets records: they are in its hand until its next read."""
        self.progress.resting = False
        if _IN_HAND.get() is not self._reference:
            _IN_HAND.set(self._reference)

    def rest(self) -> None:
        """The program reads again: the records in hand are processed, and the group may revoke partitions."""
        self.progress.rest()
        if self.group.membership is not None:
            self.group.membership.resting()

    def take_back(self, left: Mapping[TopicPartition, int], last: tuple[TopicPartition, int] | None) -> None:
        """The program has not got `left` of the batch in hand, from these offsets on: give them again.

        `last` is the record that it is processing. That one is not handled yet, unless it was committed.
        """
        states = self.fetcher.states
        for partition, offset in left.items():
            if partition in states:
                states[partition].jump(offset)
        self.fetcher.wake()
        self.fetcher.announce()
        progress = self.progress
        if last is not None and progress.tracks_handled:
            partition, offset = last
            known = progress.handled.get(partition)
            done = max(offset, known.offset) if known is not None else offset
            progress.handled = progress.uncommitted() | {partition: CommittedOffset(done)}

    async def wait_available(self, count: int) -> None:
        """Wait for `count` records, for an error, or until the buffer is full."""
        while True:
            self.progress.check()
            if self._available() >= count:
                return
            if any(state.readable() for state in self.fetcher.states.values()) and (count == 1 or self.fetcher.full):
                return
            await self.wait_arrived()

    async def wait_arrived(self) -> None:
        """Wait for an event of the fetcher: records, positions, partitions, or an error."""
        self.progress.waits = True
        try:
            await self.fetcher.arrived.wait()
        finally:
            self.progress.waits = False

    def _available(self) -> int:
        return sum(state.available() for state in self.fetcher.states.values())

    async def unpack_ahead(self, limit: int, states: list[PartitionState]) -> None:
        """Unpack the large compressed batches of the next records, in other threads, a few at once.

        `states` are the partitions in reading order. A cancelled wait keeps unpacked batches
        in place: no record is lost or out of order.
        """
        packed: list[tuple[Chunk, int, BatchHeader]] = []
        for state in states:
            if limit <= 0:
                break
            if state.readable():
                packed += packed_ahead(state.chunks, limit)
                limit -= state.available()
        entries, room = iter(packed), _UNPACKED_BYTES

        async def unpack_some() -> None:
            nonlocal room
            for chunk, start, header in entries:
                if room <= 0:
                    return
                unpack = partial(unpack_records, chunk.buffer, start, header, chunk.limit_bytes)
                try:
                    unpacked = await anyio.to_thread.run_sync(unpack)
                except UnreadableBatch:
                    continue  # raised again, with its offset, when the program reads this batch
                room -= len(unpacked)
                if any(start == entry for entry, _ in chunk.batches):
                    chunk.unpacked[start] = unpacked

        if packed:
            async with anyio.create_task_group() as nursery:
                for _ in range(min(_UNPACKED_AT_ONCE, len(packed))):
                    nursery.start_soon(unpack_some)

    def take(self, limit: int, states: list[PartitionState]) -> list[tuple[TopicPartition, list[Record]]]:
        """Up to `limit` records from these partitions, in this order. Raises ReadError for one that cannot be read."""
        runs: list[tuple[TopicPartition, list[Record]]] = []
        for state in states:
            if limit <= 0:
                break
            try:
                records = state.take(limit)
            except UnreadableBatch as wrong:
                if runs:
                    break  # the program gets the taken records first; the next read raises the error
                raise self.unreadable(state, wrong) from wrong
            if records:
                runs.append((state.partition, records))
                limit -= len(records)
                self.fetcher.metrics.records_consumed += len(records)
        self.fetcher.wake()
        return runs


class _Batches(AsyncIterator[ConsumerBatch[K, V]]):
    def __init__(self, reader: Reader[K, V], limit: int, max_wait: float) -> None:
        self._reader, self._limit, self._max_wait = reader, limit, max_wait

    async def __anext__(self) -> ConsumerBatch[K, V]:
        return await self._reader.next_batch(self._limit, self._max_wait)


class _Records(AsyncIterator[ConsumerRecord[K, V]]):
    """One record at a time; each is in hand until the next one is asked for.

    Most come directly from the batch that is unpacked already. Every 64th record, and any other case, takes
    the slow path: there the consumer commits, rewinds, lets the group rebalance and other tasks run.
    """

    def __init__(self, reader: Reader[K, V]) -> None:
        self._reader = reader
        self._progress = reader.progress
        self._metrics = reader.fetcher.metrics
        self._quick = 0
        self._turn = -1

    async def __anext__(self) -> ConsumerRecord[K, V]:
        progress = self._progress
        if self._quick:
            self._quick -= 1
            state = progress.current
            if state is not None and state.jumps == self._turn and not (progress.rewind_due or state.paused):
                chunk = state.chunks[0] if state.chunks else None
                # The slow path handles the last record of a batch: it also skips invisible records behind it.
                if chunk is not None and chunk.at + 1 < len(chunk.records):
                    record = chunk.records[chunk.at]
                    chunk.at += 1
                    chunk.left -= 1
                    state.left -= 1
                    state.position = record[0] + 1
                    self._metrics.records_consumed += 1
                    return cast("ConsumerRecord[K, V]", as_consumed(self._reader.prefix, record))
        reader = self._reader
        record_slowly = await reader.next_record()
        state = progress.current
        if reader.is_plain and state is not None:
            self._quick, self._turn = _FAIRNESS - 1, state.jumps
            reader.given += self._quick
            reader.in_a_row += self._quick
        return record_slowly
