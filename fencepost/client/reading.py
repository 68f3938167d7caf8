"""What a program reads from a consumer: batches or single records, and which of them are in its hand."""

import weakref
from collections.abc import AsyncIterator
from contextvars import ContextVar

import trio

from fencepost.client.cluster import Cluster
from fencepost.client.config import ConsumerConfig
from fencepost.client.consumed import ConsumerBatch, ConsumerRecord, deserialized
from fencepost.client.errors import KafkaError
from fencepost.client.fetch_state import CHUNKS_AHEAD, PartitionState
from fencepost.client.positions import Positions
from fencepost.protocol.batch_header import CorruptBatch
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.records import Record
from fencepost.protocol.topics import TopicPartition

_FAIRNESS = 64
_IN_HAND: ContextVar["weakref.ref[Reading] | None"] = ContextVar("fencepost_consumer_in_hand", default=None)


def reader_in_hand() -> "Reading | None":
    """The group consumer whose batch this task works on, if any."""
    reference = _IN_HAND.get()
    consumer = reference() if reference is not None else None
    return consumer if consumer is not None and consumer.group_id is not None and not consumer.at_rest() else None


def _corrupt(state: PartitionState, wrong: CorruptBatch) -> KafkaError:
    return KafkaError(f"{state.partition}: {wrong}", code=ErrorCode.CORRUPT_MESSAGE, api="Fetch")


class Reading(Positions):
    """The part of a consumer that gives records to the program. What it gave is in hand until more is asked for."""

    def __init__(self, cluster: Cluster, config: ConsumerConfig, purpose: str) -> None:
        super().__init__(cluster, config, purpose)
        self._committed_at = 0.0
        self._turn = 0
        self._given = 0
        self._current: PartitionState | None = None
        self._reference = weakref.ref(self)

    # -- reading

    def batches(self, max_records: int | None = None, max_wait: float = 0.0) -> AsyncIterator[ConsumerBatch]:
        """Batches for ever: each as soon as there is a record, or up to `max_wait` seconds later if that fills it.

        Asking for the next batch says that the one before is done with. Never yields an empty batch; use trio's
        timeouts to stop waiting, nothing is lost by that.
        """
        return _Batches(self, max_records or self._config.max_poll_records, max_wait)

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        return _Records(self)

    async def _next(self, limit: int, max_wait: float) -> ConsumerBatch:
        self._rest()
        if self._config.enable_auto_commit:
            await self._commit_if_due()
        while True:
            await self._wait_available(1)
            if max_wait and self._available() < limit:
                with trio.move_on_after(max_wait):
                    await self._wait_available(limit)
            await trio.lowlevel.checkpoint()
            self._check()
            runs = self._take(limit)
            if runs:
                break
        self._give()
        return ConsumerBatch(runs, self._config)

    async def _next_record(self) -> ConsumerRecord:
        self._rest()
        if self._config.enable_auto_commit:
            await self._commit_if_due()
        while True:
            self._given += 1
            if self._given % _FAIRNESS == 0:
                await trio.lowlevel.checkpoint()
            self._check()
            state = self._current
            record = None
            if state is not None and self._given % self._config.max_poll_records:
                record = self._one_of(state)
            if record is None:
                state, record = self._one_of_another()
            if state is not None and record is not None:
                self._give()
                return deserialized(state.partition, record, self._config)
            await self._wait_available(1)

    def _one_of(self, state: PartitionState) -> Record | None:
        if self._fetcher.states.get(state.partition) is not state:
            return None
        try:
            record = state.take_one()
        except CorruptBatch as wrong:
            raise _corrupt(state, wrong) from wrong
        if len(state.chunks) < CHUNKS_AHEAD:
            self._fetcher.wake()
        return record

    def _one_of_another(self) -> tuple[PartitionState | None, Record | None]:
        """Go on with the next partition that has something, so that a busy one does not starve the others."""
        states = list(self._fetcher.states.values())
        self._turn = (self._turn + 1) % max(len(states), 1)
        for state in states[self._turn :] + states[: self._turn]:
            record = self._one_of(state)
            if record is not None:
                self._current = state
                return state, record
        return None, None

    def _give(self) -> None:
        """The program gets records: they are in its hand until it asks for more."""
        self._resting = False
        self._hand = self._membership.metadata if self._membership is not None else None
        if _IN_HAND.get() is not self._reference:
            _IN_HAND.set(self._reference)

    def _rest(self) -> None:
        self._resting = True
        self._hand = None
        self._void = False
        if self._rewind_due:
            self._go_back()
        if self._membership is not None:
            self._membership.resting()

    async def _wait_available(self, count: int) -> None:
        while True:
            self._check()
            if self._available() >= count:
                return
            await self._fetcher.arrived.wait()

    def _available(self) -> int:
        return sum(state.available() for state in self._fetcher.states.values())

    def _take(self, limit: int) -> list[tuple[TopicPartition, list[Record]]]:
        """Records from the partitions in turn, so that a busy one does not starve the others."""
        states = list(self._fetcher.states.values())
        self._turn = (self._turn + 1) % max(len(states), 1)
        runs = []
        for state in states[self._turn :] + states[: self._turn]:
            if limit <= 0:
                break
            try:
                records = state.take(limit)
            except CorruptBatch as wrong:
                raise _corrupt(state, wrong) from wrong
            if records:
                runs.append((state.partition, records))
                limit -= len(records)
        self._fetcher.wake()
        return runs

    async def _commit_if_due(self) -> None:
        now = trio.current_time()
        if now - self._committed_at >= self._config.auto_commit_interval_ms / 1000:
            self._committed_at = now
            await self._commit_positions()

    def at_rest(self) -> bool:
        """No batch is in the program's hand."""
        return self._resting


class _Batches(AsyncIterator[ConsumerBatch]):
    def __init__(self, consumer: Reading, limit: int, max_wait: float) -> None:
        self._consumer, self._limit, self._max_wait = consumer, limit, max_wait

    async def __anext__(self) -> ConsumerBatch:
        return await self._consumer._next(self._limit, self._max_wait)


class _Records(AsyncIterator[ConsumerRecord]):
    """One record at a time; each is in hand until the next one is asked for."""

    def __init__(self, consumer: Reading) -> None:
        self._consumer = consumer

    async def __anext__(self) -> ConsumerRecord:
        return await self._consumer._next_record()
