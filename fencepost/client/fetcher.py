"""Keeps a consumer's partitions supplied: finds out positions, asks the leaders, takes the answers in."""

import math
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from fencepost.client.cluster import NO_LEADER, Cluster
from fencepost.client.config import ConsumerConfig
from fencepost.client.errors import ConnectionLost, KafkaError, RetriableError, code_of, error_for
from fencepost.client.fetch_state import PartitionState
from fencepost.client.group_requests import EARLIEST, LATEST, list_offsets
from fencepost.client.retry import Backoff
from fencepost.client.txn_requests import CommittedOffset
from fencepost.protocol.batch_header import CorruptBatch
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api01_fetch import FetchPartition, FetchRequest, FetchTopic
from fencepost.protocol.registry import API_BY_KEY
from fencepost.protocol.topics import TopicPartition

FETCH = API_BY_KEY[1]
LANES = 2
"""Two requests may be parked at one broker, so that a partition that jumps need not wait for an old long poll."""
_LAST_WITHOUT_IDS = 12
_IDLE_CHECK_S = 1.0
Committed = Callable[[list[TopicPartition]], Awaitable[dict[TopicPartition, CommittedOffset]]]


class Fetcher:
    """The fetching side of one consumer. `states` are its assigned partitions; `committed` asks its group."""

    def __init__(self, cluster: Cluster, config: ConsumerConfig, purpose: str, committed: Committed | None) -> None:
        self._cluster = cluster
        self._config = config
        self._purpose = purpose
        self._committed = committed
        self.states: dict[TopicPartition, PartitionState] = {}
        self._wake = trio.Event()
        self.arrived = trio.Event()
        self.failure: KafkaError | None = None
        self._busy: dict[tuple[int, int], bool] = {}
        self._resting: dict[int, tuple[float, Backoff]] = {}
        self._resolving = False
        self._refresh_due = False
        self._refresh_at = 0.0
        self._backoff = cluster.policy.backoff()

    def wake(self) -> None:
        """Look again: partitions were assigned, taken from, moved or resumed."""
        self._wake.set()

    def announce(self) -> None:
        """Wake whoever waits for records, for positions or for a failure."""
        self.arrived.set()
        self.arrived = trio.Event()

    def fail(self, error: KafkaError) -> None:
        """The consumer's next call raises this."""
        self.failure = error
        self.announce()

    async def run(self) -> None:
        """Fetch until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                self._wake = trio.Event()
                wakes_at = self._round(nursery, trio.current_time())
                with trio.move_on_at(wakes_at):
                    await self._wake.wait()

    def _round(self, nursery: trio.Nursery, now: float) -> float:
        if not self.states or self.failure is not None:
            return math.inf
        if not self._resolving and any(state.position is None for state in self.states.values()):
            self._resolving = True
            nursery.start_soon(self._resolve)
        by_node: dict[int, list[PartitionState]] = {}
        wakes_at = math.inf
        for state in self.states.values():
            if state.retry_at > now:
                wakes_at = min(wakes_at, state.retry_at)
            if not state.fetchable(now):
                continue
            leader = self._cluster.leader(state.partition)
            if leader == NO_LEADER:
                self._refresh_due = True
                wakes_at = min(wakes_at, now + _IDLE_CHECK_S)
            else:
                by_node.setdefault(leader, []).append(state)
        if self._refresh_due and not self._resolving:
            if self._refresh_at <= now:
                self._resolving = True
                nursery.start_soon(self._resolve)
            else:
                wakes_at = min(wakes_at, self._refresh_at)
        for node, states in by_node.items():
            rests_until = self._resting.get(node, (0.0, None))[0]
            if rests_until > now:
                wakes_at = min(wakes_at, rests_until)
                continue
            for lane in range(LANES):
                if not self._busy.get((node, lane)):
                    self._busy[node, lane] = True
                    for state in states:
                        state.in_request = True
                    nursery.start_soon(self._fetch, node, lane, [(state, state.turn) for state in states])
                    break
        return wakes_at

    # -- positions

    async def _resolve(self) -> None:
        """Fresh metadata where it is due, and a position for every partition that has none."""
        backoff = self._cluster.policy.backoff()
        try:
            while True:
                try:
                    if self._refresh_due:
                        self._refresh_due = False
                        self._refresh_at = trio.current_time() + self._backoff.next_delay()
                        await self._cluster.refresh({partition.topic for partition in self.states})
                    if all(state.position is not None for state in self.states.values()):
                        break
                    await self._find_positions()
                except RetriableError:
                    self._refresh_due = True
                    await backoff.pause()
        except KafkaError as error:
            self.fail(error)
        finally:
            self._resolving = False
            self.wake()
            self.announce()

    async def _find_positions(self) -> None:
        lost = {p: (state, state.turn) for p, state in self.states.items() if state.position is None}
        asked = [partition for partition, (state, _) in lost.items() if state.reset is None]
        committed: dict[TopicPartition, CommittedOffset] = {}
        if asked and self._committed is not None:
            committed = await self._committed(asked)
        for partition, place in committed.items():
            self._settle(lost, partition, place.offset)
        wanted: dict[TopicPartition, int] = {}
        for partition, (state, _) in lost.items():
            if state.reset is not None:
                wanted[partition] = state.reset
            elif partition not in committed:
                wanted[partition] = self._policy(partition)
        if wanted:
            found = await list_offsets(self._cluster, wanted, self._config.isolation_level, self._purpose)
            for partition, (offset, _) in found.items():
                self._settle(lost, partition, offset)

    def _settle(
        self, lost: dict[TopicPartition, tuple[PartitionState, int]], partition: TopicPartition, offset: int
    ) -> None:
        state, turn = lost[partition]
        if state.turn == turn and self.states.get(partition) is state:
            state.start_at(max(offset, 0))

    def _policy(self, partition: TopicPartition) -> int:
        if self._config.auto_offset_reset == "none":
            raise KafkaError(
                f"{partition} has no position to start from and auto_offset_reset is 'none'",
                code=ErrorCode.OFFSET_OUT_OF_RANGE,
                api="Fetch",
            )
        return EARLIEST if self._config.auto_offset_reset == "earliest" else LATEST

    # -- fetching

    async def _fetch(self, node: int, lane: int, asked: list[tuple[PartitionState, int]]) -> None:
        try:
            connection = await self._cluster.connection(node, f"{self._purpose}-fetch-{lane}")
            by_id = connection.version_for(FETCH) > _LAST_WITHOUT_IDS and all(
                any(self._cluster.topics[state.partition.topic].topic_id)
                for state, _ in asked
                if state.partition.topic in self._cluster.topics
            )
            version = connection.version_for(FETCH, at_most=1 << 15 if by_id else _LAST_WITHOUT_IDS)
            timeout_s = self._config.fetch_max_wait_ms / 1000 + self._cluster.request_timeout_s
            answer = await connection.ask(FETCH, version, self._request(asked), timeout_s)
        except ConnectionLost:
            self._rest(node)
            self._refresh_due = True
        except RetriableError:
            self._refresh_due = True
        except KafkaError as error:
            self.fail(error)
        else:
            self._resting.pop(node, None)
            self._take_in(answer, asked, node)
        finally:
            self._busy[node, lane] = False
            for state, turn in asked:
                if state.turn == turn:
                    state.in_request = False
            self.wake()

    def _rest(self, node: int) -> None:
        _, backoff = self._resting.get(node, (0.0, self._cluster.policy.backoff()))
        self._resting[node] = (trio.current_time() + backoff.next_delay(), backoff)

    def _request(self, asked: list[tuple[PartitionState, int]]) -> Any:
        config = self._config
        topics: dict[str, Any] = {}
        for state, _ in asked:
            name, partition = state.partition
            info = self._cluster.topics.get(name)
            entry = topics.get(name)
            if entry is None:
                topic_id = info.topic_id if info is not None else bytes(16)
                entry = topics[name] = FetchTopic(topic=name, topic_id=topic_id, partitions=[])
            epoch = -1
            if info is not None and partition < len(info.partitions):
                epoch = info.partitions[partition].leader_epoch
            entry.partitions.append(
                FetchPartition(
                    partition=partition,
                    current_leader_epoch=epoch,
                    fetch_offset=state.fetch_offset,
                    partition_max_bytes=config.max_partition_fetch_bytes,
                )
            )
        return FetchRequest(
            max_wait_ms=config.fetch_max_wait_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=config.fetch_max_bytes,
            isolation_level=config.isolation_level,
            session_id=0,
            session_epoch=-1,
            topics=list(topics.values()),
        )

    def _take_in(self, answer: Any, asked: list[tuple[PartitionState, int]], node: int) -> None:
        if answer.error_code:
            code = code_of(answer.error_code)
            if not code.retriable:
                self.fail(error_for(code, "a fetch was refused", api="Fetch", node=node))
            self._refresh_due = True
            return
        current = {state.partition: state for state, turn in asked if state.turn == turn}
        for topic in answer.responses:
            name = topic.topic or self._cluster.names.get(topic.topic_id, "")
            for part in topic.partitions:
                state = current.get(TopicPartition(name, part.partition_index))
                if state is None or self.states.get(state.partition) is not state:
                    continue
                code = code_of(part.error_code)
                if code is ErrorCode.NONE:
                    self._arrive(state, part, node)
                else:
                    self._refused(state, code, node)
        self.announce()

    def _arrive(self, state: PartitionState, part: Any, node: int) -> None:
        try:
            state.arrive(part, self._config.isolation_level, self._config.check_crcs)
            self._backoff.reset()
        except CorruptBatch as wrong:
            self.fail(KafkaError(str(wrong), code=ErrorCode.CORRUPT_MESSAGE, api="Fetch", node=node))
            assert self.failure is not None
            self.failure.__cause__ = wrong

    def _refused(self, state: PartitionState, code: ErrorCode, node: int) -> None:
        """What an error means for one partition: find a new place, a new leader, or give up."""
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            try:
                reset = self._policy(state.partition)
            except KafkaError as error:
                self.fail(error)
                return
            state.jump(None)
            state.reset = reset
        elif code.retriable:
            state.retry_at = trio.current_time() + self._backoff.next_delay()
            self._refresh_due = True
        else:
            self.fail(error_for(code, f"{state.partition} can not be read", api="Fetch", node=node))
