"""What a program reads from a consumer: batches, single records or columns, and which of them are in its hand."""

import weakref
from collections.abc import AsyncIterator, Iterable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Generic, cast

import trio

from fencepost.client.config import ConsumerConfig
from fencepost.client.consumer.chunk import Chunk, RawFetch, packed_ahead
from fencepost.client.consumer.committing import Committing
from fencepost.client.consumer.consumed import ConsumerBatch, ConsumerRecord, K, V, as_consumed, deserialized
from fencepost.client.consumer.fetch_state import PartitionState
from fencepost.client.consumer.read_errors import CorruptRecords, DeserializationFailed
from fencepost.client.network.cluster import Cluster
from fencepost.protocol.batch_header import BatchHeader, CorruptBatch
from fencepost.protocol.records import Record, expect_many, unpack_records
from fencepost.protocol.topics import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from fencepost.client.consumer.whole_transactions import WholeTransactions

_FAIRNESS = 64
_IN_HAND: ContextVar["weakref.ref[Reading[Any, Any]] | None"] = ContextVar("fencepost_consumer_in_hand", default=None)


def reader_in_hand() -> "Reading[Any, Any] | None":
    """The group consumer whose batch this task works on, if any."""
    reference = _IN_HAND.get()
    consumer = reference() if reference is not None else None
    return consumer if consumer is not None and consumer.group_id is not None and not consumer.at_rest() else None


class Reading(Committing, Generic[K, V]):
    """The part of a consumer that gives records to the program. What it gave is in hand until more is asked for."""

    def __init__(self, cluster: Cluster, config: ConsumerConfig, purpose: str) -> None:
        super().__init__(cluster, config, purpose)
        expect_many()
        self._committed_at = 0.0
        self._turn = 0
        self._given = 0
        self._in_a_row = 0
        self._gave_one = False
        self._plain = config.key_deserializer is None and config.value_deserializer is None
        self._current: PartitionState | None = None
        self._prefix: tuple[str, int] = ("", 0)
        self._reference = weakref.ref(self)

    # -- reading

    def batches(self, max_records: int | None = None, max_wait: float = 0.0) -> AsyncIterator[ConsumerBatch[K, V]]:
        """Batches for ever: each as soon as there is a record, or up to `max_wait` seconds later if that fills it.

        Asking for the next batch says that the one before is done with. Never yields an empty batch; use trio's
        timeouts to stop waiting, nothing is lost by that. Raises ReadError where the log can not be read on.
        """
        return _Batches(self, max_records or self._config.max_poll_records, max_wait)

    def __aiter__(self) -> AsyncIterator[ConsumerRecord[K, V]]:
        """One record at a time; each is in hand until the next one is asked for."""
        return _Records(self)

    def arrow(
        self, *, max_bytes: int = 32 << 20, columns: Iterable[str] | None = None
    ) -> "AsyncIterator[pa.RecordBatch]":
        """Arrow record batches for ever, without a Python object per record; needs pyarrow and numpy.

        Each has records of one partition in order, from what one answer brought (up to about `max_bytes` of it, with
        batches unpacked). Columns: topic (dictionary of string), partition (int32), offset (int64), timestamp (ms, UTC;
        null where the producer gave none), timestamp_type (0 CreateTime, 1 LogAppendTime), key and value (binary),
        headers (list of key and value; null where a record has none). `columns` names those to build; building fewer
        is cheaper. Asking for the next one says that the one before is done with, as in `batches`.
        """
        from fencepost.client.consumer.arrow import ArrowBatches  # here: pyarrow is not installed with every client

        return ArrowBatches(self, max_bytes, columns)

    def transactions(self, *, max_bytes: int = 64 << 20, overflow: str = "error") -> "WholeTransactions[K, V]":
        """Each committed transaction of the assigned partitions as one unit, never a part of it, for ever.

        What waits for its transaction to be complete is held, up to `max_bytes`; beyond that TransactionTooLarge is
        raised, or with `overflow="spill"` a temporary file is used. Asking for the next one says that the one before is
        done with; `commit` and `send_offsets` commit so that none is cut, doubled or lost. Call it before anything else
        is read, and read nothing else beside it. Its limits stand in the guide. Raises ConfigError.
        """
        from fencepost.client.consumer.whole_transactions import WholeTransactions  # here: few programs need it

        if self._whole is None:
            self._whole = WholeTransactions(self, max_bytes, overflow)
        return self._whole

    async def next_raw(self) -> RawFetch:
        """One partition's part of an answer as the broker sent it, for readers which decide themselves what counts.

        `keep_all` must have been called before the first read. The position moves behind it; it is in hand until more
        is asked for.
        """
        await self._done_with_last()
        while True:
            await self._wait_available(1)
            await trio.lowlevel.checkpoint()
            await self._let_act()
            self._check()
            for state in self._in_turn():
                try:
                    given = state.take_raw()
                except CorruptBatch as wrong:
                    raise self._corrupt(state, wrong) from wrong
                if given is not None:
                    self._fetcher.wake()
                    self._give()
                    return given

    def keep_all(self) -> None:
        """From now on keep markers and aborted records for `next_raw`, of all partitions that are assigned, ever."""
        self._fetcher.keeps_all = True
        for state in self._fetcher.states.values():
            state.keeps_all = True

    async def _next(self, limit: int, max_wait: float) -> ConsumerBatch[K, V]:
        await self._done_with_last()
        while True:
            await self._wait_available(1)
            if max_wait and self._available() < limit:
                with trio.move_on_after(max_wait):
                    await self._wait_available(limit)
            await self._unpack_ahead(limit, self._order())
            await trio.lowlevel.checkpoint()
            await self._let_act()
            self._check()
            runs = self._take(limit)
            if runs:
                break
        self._give()
        return ConsumerBatch(runs, self._config)

    async def _done_with_last(self) -> None:
        """The program asks for more: what it had is done with."""
        self._rest()
        self._gave_one = False
        await self._let_act()
        if self._config.enable_auto_commit:
            await self._commit_if_due()
        if self._minds_hand:
            self._handled = self._positions()

    async def _let_act(self) -> None:
        """Give nothing while the group takes partitions away: what `on_revoked` commits is what was asked past."""
        if self._membership is not None:
            await self._membership.let_act()

    async def _next_record(self) -> ConsumerRecord[K, V]:
        """The slow way to the next record; `_Records` takes the quick one while nothing else is due."""
        await self._done_with_last()
        while True:
            self._given += 1
            if self._given >= _FAIRNESS:
                self._given = 0
                await trio.lowlevel.checkpoint()
            self._check()
            state = self._current
            record = None
            if state is not None and self._in_a_row < self._config.max_poll_records:
                if not state.at_hand():
                    await self._unpack_ahead(1, [state])
                await self._let_act()
                record = self._one_of(state)
            if record is None:
                await self._unpack_ahead(1, self._order())
                await self._let_act()
                state, record = self._one_of_another()
            if state is not None and record is not None:
                self._in_a_row += 1
                self._give()
                self._gave_one = True
                return self._told(state, record)
            await self._wait_available(1)

    def _told(self, state: PartitionState, record: Record) -> ConsumerRecord[K, V]:
        """The record for the program; if it can not be deserialized, it is the next one again."""
        self._fetcher.metrics.records_consumed += 1
        try:
            return deserialized(state.partition, record, self._config)
        except DeserializationFailed:
            state.give_back_one(record)
            raise

    def _one_of(self, state: PartitionState) -> Record | None:
        if self._fetcher.states.get(state.partition) is not state:
            return None
        chunks = len(state.chunks)
        try:
            record = state.take_one()
        except CorruptBatch as wrong:
            raise self._corrupt(state, wrong) from wrong
        if len(state.chunks) != chunks:
            self._fetcher.wake()
        return record

    def _one_of_another(self) -> tuple[PartitionState | None, Record | None]:
        """Go on with the next partition that has something, so that a busy one does not starve the others."""
        for state in self._in_turn():
            record = self._one_of(state)
            if record is not None:
                self._current = state
                self._in_a_row = 0
                self._prefix = (state.partition.topic, state.partition.partition)
                return state, record
        return None, None

    def _order(self) -> list[PartitionState]:
        """The partitions as they will be read: another one begins each time, so that a busy one starves nobody."""
        states = list(self._fetcher.states.values())
        first = (self._turn + 1) % max(len(states), 1)
        return states[first:] + states[:first]

    def _in_turn(self) -> list[PartitionState]:
        states = self._order()
        self._turn = (self._turn + 1) % max(len(states), 1)
        return states

    def _corrupt(self, state: PartitionState, wrong: CorruptBatch) -> CorruptRecords:
        return CorruptRecords(state.partition, state.position or 0, str(wrong))

    def _give(self) -> None:
        """The program gets records: they are in its hand until it asks for more."""
        self._resting = False
        if _IN_HAND.get() is not self._reference:
            _IN_HAND.set(self._reference)

    def _rest(self) -> None:
        self._resting = True
        self._asked += 1
        self._void = self._lost_in_hand = False
        if self._rewind_due:
            self._go_back()
        if self._membership is not None:
            self._membership.resting()

    async def _wait_available(self, count: int) -> None:
        """Wait for so many records, or for an error, or until no more can come before some are taken."""
        while True:
            self._check()
            if self._available() >= count:
                return
            if any(state.readable() for state in self._fetcher.states.values()) and (count == 1 or self._fetcher.full):
                return
            self._waits = True
            try:
                await self._fetcher.arrived.wait()
            finally:
                self._waits = False

    def _available(self) -> int:
        return sum(state.available() for state in self._fetcher.states.values())

    async def _unpack_ahead(self, limit: int, states: list[PartitionState]) -> None:
        """Unpack large compressed batches that the next records are in, in other threads, all at once.

        `states` are the partitions in the order in which they will be read. A cancelled wait leaves what was unpacked
        where it is: nothing is lost, nothing is out of order.
        """
        packed: list[tuple[Chunk, int, BatchHeader]] = []
        for state in states:
            if limit <= 0:
                break
            if state.readable():
                packed += packed_ahead(state.chunks, limit)
                limit -= state.available()
        if packed:
            async with trio.open_nursery() as nursery:
                for entry in packed:
                    nursery.start_soon(self._unpack, *entry)

    async def _unpack(self, chunk: Chunk, start: int, header: BatchHeader) -> None:
        try:
            unpacked = await trio.to_thread.run_sync(lambda: bytes(unpack_records(chunk.buffer, start, header)))
        except CorruptBatch:
            return  # found again, with its place, when it is this batch's turn
        if any(start == entry for entry, _ in chunk.batches):
            chunk.unpacked[start] = unpacked

    def _take(self, limit: int) -> list[tuple[TopicPartition, list[Record]]]:
        """Records from the partitions in turn, so that a busy one does not starve the others."""
        runs: list[tuple[TopicPartition, list[Record]]] = []
        for state in self._in_turn():
            if limit <= 0:
                break
            try:
                records = state.take(limit)
            except CorruptBatch as wrong:
                if runs:
                    break  # what was taken is given first; the error comes with the next read
                raise self._corrupt(state, wrong) from wrong
            if records:
                runs.append((state.partition, records))
                limit -= len(records)
                self._fetcher.metrics.records_consumed += len(records)
        self._fetcher.wake()
        return runs

    async def _commit_if_due(self) -> None:
        now = trio.current_time()
        if now - self._committed_at >= self._config.auto_commit_interval_ms / 1000:
            self._committed_at = now
            await self._auto_commit(self._positions())

    def at_rest(self) -> bool:
        """No batch is in the program's hand."""
        return self._resting


class _Batches(AsyncIterator[ConsumerBatch[K, V]]):
    def __init__(self, consumer: Reading[K, V], limit: int, max_wait: float) -> None:
        self._consumer, self._limit, self._max_wait = consumer, limit, max_wait

    async def __anext__(self) -> ConsumerBatch[K, V]:
        return await self._consumer._next(self._limit, self._max_wait)


class _Records(AsyncIterator[ConsumerRecord[K, V]]):
    """One record at a time; each is in hand until the next one is asked for.

    Most come straight out of the batch that is unpacked already. Every 64th, and whatever needs more than that, goes
    the consumer's usual way: there it commits, goes back, lets the group rebalance and other tasks run.
    """

    def __init__(self, consumer: Reading[K, V]) -> None:
        self._consumer = consumer
        self._quick = 0
        self._turn = -1

    async def __anext__(self) -> ConsumerRecord[K, V]:
        consumer = self._consumer
        if self._quick:
            self._quick -= 1
            state = consumer._current
            if state is not None and state.turn == self._turn and not (consumer._rewind_due or state.paused):
                chunk = state.chunks[0] if state.chunks else None
                # The last record of a batch is left to the other way, which also passes over what follows unseen.
                if chunk is not None and chunk.at + 1 < len(chunk.records):
                    record = chunk.records[chunk.at]
                    chunk.at += 1
                    chunk.left -= 1
                    state.left -= 1
                    state.position = record[0] + 1
                    consumer._fetcher.metrics.records_consumed += 1
                    return cast("ConsumerRecord[K, V]", as_consumed(consumer._prefix, record))
        record_slowly = await consumer._next_record()
        state = consumer._current
        if consumer._plain and state is not None:
            self._quick, self._turn = _FAIRNESS - 1, state.turn
            consumer._given += self._quick
            consumer._in_a_row += self._quick
        return record_slowly
