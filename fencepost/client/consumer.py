"""The consumer: records in batches or one by one, as a member of a group or with partitions of one's own choice."""

import weakref
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextvars import ContextVar
from types import TracebackType
from typing import Any, NamedTuple, overload

import trio

from fencepost.client.background import Background
from fencepost.client.cluster import Cluster
from fencepost.client.config import ConsumerConfig
from fencepost.client.errors import AbortableError, ConfigError, KafkaError
from fencepost.client.fetch_state import PartitionState
from fencepost.client.fetcher import Fetcher
from fencepost.client.group_requests import EARLIEST, LATEST, commit_offsets, fetch_committed, list_offsets
from fencepost.client.membership import Membership
from fencepost.client.txn_requests import CommittedOffset, GroupMetadata
from fencepost.protocol.batch_header import CorruptBatch
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.records import Record
from fencepost.protocol.topics import TopicPartition

_IN_HAND: ContextVar["weakref.ref[Consumer] | None"] = ContextVar("fencepost_consumer_in_hand", default=None)


def in_hand() -> "Consumer | None":
    """The group consumer whose batch this task works on, if any."""
    reference = _IN_HAND.get()
    consumer = reference() if reference is not None else None
    return consumer if consumer is not None and consumer.group_id is not None and not consumer.at_rest() else None


class ConsumerRecord(NamedTuple):
    """One record as it was read; the timestamp is in ms, `headers` are (name, bytes or None) pairs."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...]


class ConsumerBatch(Sequence[ConsumerRecord]):
    """Records of one or more partitions, in order within each. `runs` gives them without a topic on every record."""

    __slots__ = ("_config", "_count", "runs")

    def __init__(self, runs: list[tuple[TopicPartition, list[Record]]], config: ConsumerConfig) -> None:
        self.runs = runs
        self._config = config
        self._count = sum(len(records) for _, records in runs)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[ConsumerRecord]:
        of_key, of_value = self._config.key_deserializer, self._config.value_deserializer
        for (topic, partition), records in self.runs:
            for offset, timestamp_ms, key, value, headers in records:
                yield ConsumerRecord(
                    topic,
                    partition,
                    offset,
                    timestamp_ms,
                    key if of_key is None or key is None else of_key(key),
                    value if of_value is None or value is None else of_value(value),
                    headers,
                )

    @overload
    def __getitem__(self, index: int) -> ConsumerRecord: ...
    @overload
    def __getitem__(self, index: slice) -> list[ConsumerRecord]: ...
    def __getitem__(self, index: int | slice) -> ConsumerRecord | list[ConsumerRecord]:
        return list(self)[index]


class Consumer:
    """Reads topics; open it with `async with kafka.consumer("orders", group="billing")`.

    With a group it is a member from the start and partitions come and go between two batches; without one it reads
    every partition of its topics, or what `assign` says. What goes wrong in the background is raised by the next call.
    """

    def __init__(
        self, cluster: Cluster, background: Background, topics: tuple[str, ...], config: ConsumerConfig, purpose: str
    ) -> None:
        if config.group_instance_id is not None and config.group_id is None:
            raise ConfigError("group_instance_id needs a group")
        self._cluster = cluster
        self._background = background
        self._topics = topics
        self._config = config
        self._purpose = purpose
        self.group_id = config.group_id
        self._fetcher = Fetcher(cluster, config, purpose, self._ask_committed if config.group_id else None)
        self._membership: Membership | None = None
        self._scopes: list[trio.CancelScope] = []
        self._hand: GroupMetadata | None = None
        self._resting = True
        self._rewind_due = False
        self._void = False
        self._committed_at = 0.0
        self._turn = 0
        self._open = False

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
                info = await self._cluster.topic(name)
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
        self._resting = False
        self._hand = self._membership.metadata if self._membership is not None else None
        _IN_HAND.set(weakref.ref(self))
        return ConsumerBatch(runs, self._config)

    def _rest(self) -> None:
        self._resting = True
        self._hand = None
        self._void = False
        if self._rewind_due:
            self._go_back()
        if self._membership is not None:
            self._membership.resting()

    def _check(self) -> None:
        if not self._open:
            raise RuntimeError("the consumer is not open: use it with `async with`")
        if self._fetcher.failure is not None:
            raise self._fetcher.failure

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
                raise KafkaError(f"{state.partition}: {wrong}", code=ErrorCode.CORRUPT_MESSAGE, api="Fetch") from wrong
            if records:
                runs.append((state.partition, records))
                limit -= len(records)
        self._fetcher.wake()
        return runs

    # -- partitions and positions

    @property
    def assignment(self) -> set[TopicPartition]:
        """The partitions that are read now."""
        return set(self._fetcher.states)

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read these partitions and no others, without a group's rebalancing; committing needs a group name still."""
        if self._membership is not None:
            raise RuntimeError("the group assigns this consumer's partitions")
        self._assign(partitions)

    def _assign(self, partitions: Collection[TopicPartition]) -> None:
        old = self._fetcher.states
        self._fetcher.states = {p: old.get(p) or PartitionState(p) for p in partitions}
        self._fetcher.wake()

    async def position(self, partition: TopicPartition) -> int:
        """The offset of the next record that the program will get."""
        state = self._state(partition)
        while state.position is None:
            self._check()
            await self._fetcher.arrived.wait()
        if self._rewind_due and state.rewind_point is not None:
            return state.rewind_point
        return state.position

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at `offset`."""
        self._state(partition).start_at(offset)
        self._fetcher.wake()

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go to the first offset that is still there; of all partitions if none is named."""
        self._seek_to(partitions, EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go to the end: the last stable offset for read_committed; of all partitions if none is named."""
        self._seek_to(partitions, LATEST)

    def _seek_to(self, partitions: Collection[TopicPartition], timestamp: int) -> None:
        for partition in partitions or self._fetcher.states:
            state = self._state(partition)
            state.jump(None)
            state.reset = timestamp
        self._fetcher.wake()

    def pause(self, *partitions: TopicPartition) -> None:
        """Give out nothing of these partitions (all, if none is named) until they are resumed."""
        for partition in partitions or self._fetcher.states:
            self._state(partition).paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        """Go on with paused partitions (all, if none is named)."""
        for partition in partitions or self._fetcher.states:
            self._state(partition).paused = False
        self._fetcher.wake()
        self._fetcher.announce()

    def _state(self, partition: TopicPartition) -> PartitionState:
        state = self._fetcher.states.get(TopicPartition(*partition))
        if state is None:
            raise KafkaError(f"{partition} is not assigned to this consumer")
        return state

    def lag(self) -> dict[TopicPartition, int | None]:
        """Offsets between each position and what may be read: the last stable offset for read_committed.

        Markers count as offsets until they are passed, so a reader at the end has lag 0. None before the first fetch.
        """
        return {p: state.lag(self._config.isolation_level) for p, state in self._fetcher.states.items()}

    async def end_offsets(self) -> dict[TopicPartition, int]:
        """The end of each assigned partition as the broker sees it now."""
        wanted = dict.fromkeys(self._fetcher.states, LATEST)
        found = await self._cluster.policy.run(
            lambda: list_offsets(self._cluster, wanted, self._config.isolation_level, self._purpose)
        )
        return {partition: offset for partition, (offset, _) in found.items()}

    # -- offsets

    async def committed(self, *partitions: TopicPartition) -> dict[TopicPartition, int | None]:
        """The group's committed offsets (of the assigned partitions, if none is named); None where there is none."""
        wanted = list(partitions or self._fetcher.states)
        found = await self._cluster.policy.run(lambda: self._ask_committed(wanted), what="committed offsets")
        return {partition: found[partition].offset if partition in found else None for partition in wanted}

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit the positions (or `offsets`) of this member, outside of transactions.

        Raises KafkaError (ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS) when the group has moved on.
        """
        if offsets is None:
            await self._commit_positions()
        else:
            group = self._hand or self._group()
            await self._commit(group, {TopicPartition(*p): CommittedOffset(o) for p, o in offsets.items()})

    async def _commit_if_due(self) -> None:
        now = trio.current_time()
        if now - self._committed_at >= self._config.auto_commit_interval_ms / 1000:
            self._committed_at = now
            await self._commit_positions()

    async def _commit_positions(self) -> None:
        group, positions = self.offsets_in_hand()
        if positions:
            await self._commit(group, positions)

    async def _commit(self, group: GroupMetadata, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        await self._cluster.policy.run(
            lambda: commit_offsets(self._cluster, group, offsets, self._purpose), what="committing offsets"
        )
        self.committed_in_transaction({partition: place.offset for partition, place in offsets.items()})

    async def _ask_committed(self, partitions: list[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        return await fetch_committed(self._cluster, self._group().group_id, partitions, self._purpose)

    def _group(self) -> GroupMetadata:
        if self.group_id is None:
            raise KafkaError("this consumer has no group", code=ErrorCode.INVALID_GROUP_ID)
        return self._membership.metadata if self._membership is not None else GroupMetadata(self.group_id)

    # -- for transactions

    def offsets_in_hand(self) -> tuple[GroupMetadata, dict[TopicPartition, CommittedOffset]]:
        """Who this consumer is in its group (as of the batch in hand), and the positions not committed yet.

        Raises AbortableError when the membership under which the batch in hand was read is known to be over.
        """
        if self._void:
            raise RuntimeError("the last commit's outcome is unknown: read the records again instead of retrying them")
        group = self._hand or self._group()
        if self._hand is not None and self._hand != self._group():
            raise AbortableError(
                "the group has given this batch's partitions away", code=ErrorCode.ILLEGAL_GENERATION, api="Heartbeat"
            )
        return group, {
            partition: CommittedOffset(state.position, state.leader_epoch)
            for partition, state in self._fetcher.states.items()
            if state.position is not None and state.position != state.rewind_point
        }

    def committed_in_transaction(self, offsets: Mapping[TopicPartition, int]) -> None:
        """These offsets are committed: an abort goes back no further."""
        for partition, offset in offsets.items():
            state = self._fetcher.states.get(partition)
            if state is not None:
                state.rewind_point = offset

    def rewind(self) -> None:
        """Go back to where the last commit was; what was read since comes again.

        While a batch is in hand this waits for the next read: a program may also try the same batch once more, and
        when that commits there is nothing to go back for.
        """
        if self._resting:
            self._go_back()
        else:
            self._rewind_due = True

    def _go_back(self) -> None:
        self._rewind_due = False
        for state in self._fetcher.states.values():
            if state.rewind_point is not None and state.rewind_point != state.position:
                state.start_at(state.rewind_point)
        self._fetcher.wake()

    def forget_positions(self) -> None:
        """Nobody knows what is committed: ask the group before reading on; the batch in hand must not be retried."""
        self._void = not self._resting
        for state in self._fetcher.states.values():
            if self.group_id is not None:
                state.jump(None)
            elif state.rewind_point is not None:
                state.start_at(state.rewind_point)
        self._fetcher.wake()

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
        return next(iter(await self._consumer._next(1, 0.0)))
