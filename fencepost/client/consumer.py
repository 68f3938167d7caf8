"""The consumer: records in batches or one by one, as a member of a group or with partitions of one's own choice."""

import weakref
from collections.abc import AsyncIterator
from contextvars import ContextVar
from types import TracebackType

import trio

from fencepost.client.background import Background
from fencepost.client.cluster import Cluster
from fencepost.client.config import ConsumerConfig
from fencepost.client.consumed import ConsumerBatch, ConsumerRecord, deserialized
from fencepost.client.errors import KafkaError
from fencepost.client.fetch_state import CHUNKS_AHEAD, PartitionState
from fencepost.client.membership import Membership
from fencepost.client.positions import Positions
from fencepost.client.txn_requests import CommittedOffset
from fencepost.protocol.batch_header import CorruptBatch
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.records import Record
from fencepost.protocol.topics import TopicPartition

_FAIRNESS = 64
_IN_HAND: ContextVar["weakref.ref[Consumer] | None"] = ContextVar("fencepost_consumer_in_hand", default=None)


def in_hand() -> "Consumer | None":
    """The group consumer whose batch this task works on, if any."""
    reference = _IN_HAND.get()
    consumer = reference() if reference is not None else None
    return consumer if consumer is not None and consumer.group_id is not None and not consumer.at_rest() else None


def _corrupt(state: PartitionState, wrong: CorruptBatch) -> KafkaError:
    return KafkaError(f"{state.partition}: {wrong}", code=ErrorCode.CORRUPT_MESSAGE, api="Fetch")


class Consumer(Positions):
    """Reads topics; open it with `async with kafka.consumer("orders", group="billing")`.

    With a group it is a member from the start and partitions come and go between two batches; without one it reads
    every partition of its topics, or what `assign` says. What goes wrong in the background is raised by the next call.
    """

    def __init__(
        self, cluster: Cluster, background: Background, topics: tuple[str, ...], config: ConsumerConfig, purpose: str
    ) -> None:
        super().__init__(cluster, config, purpose)
        self._background = background
        self._topics = topics
        self._scopes: list[trio.CancelScope] = []
        self._committed_at = 0.0
        self._turn = 0
        self._given = 0
        self._current: PartitionState | None = None
        self._reference = weakref.ref(self)

    # -- life

    async def __aenter__(self) -> "Consumer":
        self._open = True
        self._committed_at = trio.current_time()
        self._scopes.append(self._background.start_soon(self._fetcher.run))
        if self.group_id is not None and self._topics:
            self._membership = Membership(self._cluster, self._config, self._topics, self, self._purpose)
            self._scopes.append(self._background.start_soon(self._run_membership, self._membership))
        elif self._topics:
            partitions = []
            for name in self._topics:
                info = await self._cluster.topic(name, create=False)
                partitions += [TopicPartition(name, number) for number in range(len(info.partitions))]
            self._assign(partitions)
        await trio.lowlevel.checkpoint()
        return self

    async def _run_membership(self, membership: Membership) -> None:
        try:
            await membership.run()
        except KafkaError as error:
            self._fetcher.fail(error)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open = False
        try:
            if error is None and self._config.enable_auto_commit:
                self._hand = None
                await self._commit_positions()
        finally:
            for scope in self._scopes:
                scope.cancel()
            self._hand = None
            self._resting = True
            if self._membership is not None:
                await self._membership.leave()
            for suffix in ("", "-join", "-fetch-0", "-fetch-1"):
                self._cluster.release(self._purpose + suffix)

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

    # -- what membership asks

    def at_rest(self) -> bool:
        """No batch is in the program's hand."""
        return self._resting

    async def revoke(self) -> None:
        """The group rebalances: commit what is due, stop reading."""
        states = self._fetcher.states
        self._fetcher.states = {}
        if self._config.enable_auto_commit and self._membership is not None:
            done = {
                partition: CommittedOffset(state.position, state.leader_epoch)
                for partition, state in states.items()
                if state.position is not None and state.position != state.rewind_point
            }
            if done:
                await self._commit(self._membership.metadata, done)

    def lose(self) -> None:
        """The group has given our partitions to others: whatever is in hand can not be committed."""
        self._fetcher.states = {}

    def assign_from_group(self, partitions: list[TopicPartition]) -> None:
        """The partitions of a new generation."""
        self._rewind_due = False
        self._fetcher.states = {partition: PartitionState(partition) for partition in partitions}
        self._fetcher.wake()
        self._fetcher.announce()


class _Batches(AsyncIterator[ConsumerBatch]):
    def __init__(self, consumer: Consumer, limit: int, max_wait: float) -> None:
        self._consumer, self._limit, self._max_wait = consumer, limit, max_wait

    async def __anext__(self) -> ConsumerBatch:
        return await self._consumer._next(self._limit, self._max_wait)


class _Records(AsyncIterator[ConsumerRecord]):
    """One record at a time; each is in hand until the next one is asked for."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    async def __anext__(self) -> ConsumerRecord:
        return await self._consumer._next_record()
