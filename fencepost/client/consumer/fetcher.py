"""Fetches records ahead of the program from the leaders of its partitions, within one budget of bytes."""

import math
from collections.abc import Callable
from typing import Any

import anyio
from anyio.abc import TaskGroup

from fencepost.client.background import Background
from fencepost.client.config import ConsumerConfig
from fencepost.client.consumer.fetch_requests import FETCH_WITHOUT_IDS, end_sessions, fetch_request
from fencepost.client.consumer.fetch_state import PartitionState
from fencepost.client.consumer.metrics import FetchMetrics
from fencepost.client.consumer.position_finder import Committed, PositionFinder
from fencepost.client.core.fetch_budget import FetchBudget, Frame
from fencepost.client.core.fetch_session import NO_TOPIC_ID, FetchSession, SessionRequest, Wanted
from fencepost.client.core.partitions import NO_LEADER
from fencepost.client.errors import ConnectionLostError, KafkaError, RetriableError, code_of, error_for
from fencepost.client.network.cluster import Cluster
from fencepost.client.network.connection import Connection
from fencepost.client.network.retry import Backoff
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition

SLOTS_PER_BROKER = 2
"""Two requests may be parked at one broker, so that a partition that jumps need not wait for an old long poll."""
Asked = list[tuple[PartitionState, int]]
"""The partitions of a request, each with its `jumps` when the request was sent."""
_IDLE_CHECK_S = 1.0
_FRAME_OVERHEAD_BYTES = 1 << 10
_PARTITION_OVERHEAD_BYTES = 128
"""The size of a response without its records, and of its bookkeeping: not part of a request's maximum."""
_SESSION_REJECTED = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
_NEW_LEADER = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
_REPLICA_WRONG = frozenset(
    {
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""A follower may lag or be gone: fetch from the leader before giving the position up (KIP-392)."""


class _FetchSlot:
    """One connection's worth of fetching: one request at a time, within one fetch session."""

    __slots__ = ("busy", "session")

    def __init__(self) -> None:
        self.busy = False
        self.session = FetchSession()


class Fetcher:
    """Fetches for one consumer. `states` are its assigned partitions; `committed` fetches the group's offsets."""

    def __init__(self, cluster: Cluster, config: ConsumerConfig, purpose: str, committed: Committed | None) -> None:
        self._cluster = cluster
        self._config = config
        self._purpose = purpose
        self._states: dict[TopicPartition, PartitionState] = {}
        self._finder = PositionFinder(cluster, config, purpose, committed, lambda: self._states)
        self.budget = FetchBudget(config.queued_max_bytes)
        self.metrics = FetchMetrics()
        self.keeps_all = False
        self.full = False
        """The budget is used up: no more records come before the program takes some."""
        self.ends: dict[TopicPartition, int] | None = None
        """Where fetching ends, for a program that reads only so far."""
        self.forget: Callable[[TopicPartition], object] = lambda partition: None  # its topic was created again
        self._wake = anyio.Event()
        self.arrived = anyio.Event()
        self.failure: KafkaError | None = None
        self._slots: dict[int, list[_FetchSlot]] = {}
        self._resting: dict[int, tuple[float, Backoff]] = {}
        self._resolving = False
        self._closed = False
        self._sleep = anyio.CancelScope()
        self._refresh_due, self._refresh_at = False, 0.0
        self._responses = 0
        self._backoff = cluster.policy.backoff()

    @property
    def states(self) -> dict[TopicPartition, PartitionState]:
        """The assigned partitions; replace the whole dict. Records fetched for removed partitions are dropped."""
        return self._states

    @states.setter
    def states(self, states: dict[TopicPartition, PartitionState]) -> None:
        for partition, state in self._states.items():
            if states.get(partition) is not state:
                state.drop_buffered()
        self._states = states

    def new_state(self, partition: TopicPartition) -> PartitionState:
        """The state of a newly assigned partition, for `states`."""
        state = PartitionState(partition, limit_bytes=self._config.max_decompressed_bytes)
        state.keeps_all = self.keeps_all
        return state

    def wake(self) -> None:
        """Check again: partitions were assigned, read, moved or resumed."""
        self._wake.set()

    def announce(self) -> None:
        """Wake the tasks that wait for records, for positions or for a failure."""
        self.arrived.set()
        self.arrived = anyio.Event()

    def fail(self, error: KafkaError) -> None:
        self.failure = error
        self.announce()

    def check(self) -> None:
        """Raise the consumer's failure, or that of one partition (until the program seeks)."""
        if self.failure is not None:
            raise self.failure
        for state in self._states.values():
            if state.error is not None and not state.chunks and not state.paused:
                raise state.error

    async def run(self) -> None:
        async with anyio.create_task_group() as nursery:
            while True:
                self._wake = anyio.Event()
                wakes_at = self._round(nursery, anyio.current_time())
                with anyio.CancelScope(deadline=wakes_at) as self._sleep:
                    await self._wake.wait()

    # -- rounds

    def _round(self, nursery: TaskGroup, now: float) -> float:
        """Start the requests that are due; returns the latest time of the next check."""
        if not self._states or self.failure is not None or self._closed:
            return math.inf
        wakes_at = math.inf
        in_doubt = self._refresh_due and self._refresh_at <= now
        if self._refresh_due and not self._resolving:  # `_resolve` wakes this task at its end
            wakes_at = max(self._refresh_at, now)
        by_node: dict[int, list[PartitionState]] = {}
        for state in self._states.values():
            if state.error is not None:
                continue
            if state.position is None or self._finder.is_recreated(state) or self._finder.suspect(state):
                in_doubt = True
                continue
            if state.retry_at > now:
                wakes_at = min(wakes_at, state.retry_at)
            if not state.fetchable(now, self._config.max_partition_fetch_bytes):
                continue
            if self.ends is not None and state.fetch_offset >= self.ends.get(state.partition, math.inf):
                continue
            node = self._node_for(state, now)
            if node == NO_LEADER:
                self._refresh_due = True
                in_doubt = in_doubt or self._refresh_at <= now
                wakes_at = min(wakes_at, now + _IDLE_CHECK_S)
            else:
                by_node.setdefault(node, []).append(state)
        if in_doubt and not self._resolving:
            self._resolving = True
            nursery.start_soon(self._resolve)
        return min(wakes_at, self._ask_nodes(nursery, by_node, now))

    def _node_for(self, state: PartitionState, now: float) -> int:
        """The leader, or the follower that it prefers (KIP-392), as long as that one is part of the cluster."""
        if state.replica is not None:
            if state.replica_until > now and state.replica in self._cluster.brokers:
                return state.replica
            state.replica = None
        return self._cluster.leader(state.partition)

    def _ask_nodes(self, nursery: TaskGroup, by_node: dict[int, list[PartitionState]], now: float) -> float:
        wakes_at = math.inf
        self.full = False
        for states in by_node.values():
            states.sort(key=lambda state: state.fetched_at)
        nodes = sorted(by_node, key=lambda node: by_node[node][0].fetched_at)
        for node in nodes:
            rests_until = self._resting.get(node, (0.0, None))[0]
            if rests_until > now:
                wakes_at = min(wakes_at, rests_until)
                continue
            slots = self._slots.setdefault(node, [_FetchSlot() for _ in range(SLOTS_PER_BROKER)])
            number = next((number for number, slot in enumerate(slots) if not slot.busy), None)
            if number is None:
                continue
            room = self._reserve(by_node[node])
            if not room:
                self.full = True
                continue
            slots[number].busy = True
            asked = [(state, state.jumps) for state in by_node[node]]
            for state, _ in asked:
                state.in_request = True
            nursery.start_soon(self._fetch, nursery, node, number, asked, room)
        if self.full:
            self.announce()
        return wakes_at

    def _reserve(self, states: list[PartitionState]) -> int:
        """Room for one request: each broker gets an equal part, so that parked requests do not block other brokers."""
        part = max(self.budget.limit // (SLOTS_PER_BROKER * max(len(self._slots), 1)), 1)
        partition_bytes = self._config.max_partition_fetch_bytes
        wanted = min(self._config.fetch_max_bytes, partition_bytes * len(states), part)
        room = self.budget.reserve(wanted, min(partition_bytes, part))
        if not room and self._drop_paused():
            room = self.budget.reserve(wanted, min(partition_bytes, part))
        return room

    def _drop_paused(self) -> bool:
        """Drop the fetched records of paused partitions to make room; they are fetched again after `resume`."""
        paused = [state for state in self._states.values() if state.paused and state.chunks]
        for state in paused:
            state.drop_buffered()
        return bool(paused)

    async def _resolve(self) -> None:
        """Refresh metadata if that is due, and find or validate positions where needed."""
        retries = self._cluster.policy.loop("finding the consumer's partitions")
        try:
            while True:
                try:
                    if self._refresh_due:
                        self._refresh_due = False
                        self._refresh_at = anyio.current_time() + self._backoff.next_delay()
                        await self._cluster.refresh({partition.topic for partition in self._states})
                    self._replace_states(self._finder.renewed())
                    await self._finder.settle()
                    break
                except RetriableError as error:
                    self._refresh_due = True
                    self.wake()
                    await retries.failed(error)
        except KafkaError as error:
            self.fail(error)
        finally:
            self._resolving = False
            self.wake()
            self.announce()

    def _replace_states(self, new: dict[TopicPartition, PartitionState]) -> None:
        """Drop all that is known of these partitions: commits under way end, and ends are looked up again."""
        self.states = {**self._states, **new}
        for partition in new:
            self.forget(partition)
            if self.ends is not None:
                self.ends.pop(partition, None)

    # -- fetching

    async def _fetch(self, nursery: TaskGroup, node: int, number: int, asked: Asked, room: int) -> None:
        slot = self._slots[node][number]
        sent = False
        try:
            connection = await self._cluster.connection(node, f"{self._purpose}-fetch-{number}")
            if self._closed:
                return
            version, request = self._request(connection, slot.session, asked)
            timeout_s = self._config.fetch_max_wait_ms / 1000 + self._cluster.request_timeout_s
            began, sent = anyio.current_time(), True
            spare = _FRAME_OVERHEAD_BYTES + _PARTITION_OVERHEAD_BYTES * len(asked)
            body = fetch_request(self._config, request, max(room - spare, room // 2))
            pending = connection.post(version, body)
            frame, _ = await pending.frame(timeout_s)
            response = await pending.wait(timeout_s)
        except ConnectionLostError:
            self._rest(node)
            self._refresh_due = True
        except RetriableError:
            self._refresh_due = True
        except KafkaError as error:
            self.fail(error)
        else:
            sent = False
            self._resting.pop(node, None)
            self.metrics.fetched(anyio.current_time() - began, len(frame), response.throttle_time_ms)
            self._take_in(response, slot.session, asked, node, len(frame))
        finally:
            if sent:
                slot.session.lost()
            self.budget.settle(room)
            slot.busy = False
            for state, jumps in asked:
                if state.jumps == jumps:
                    state.in_request = False
        # At once, not by `wake`: the broker works on the next request while the program reads these records. Not when
        # cancelled: the next request would be cancelled as well, and start another one, without end.
        self._sleep.deadline = self._round(nursery, anyio.current_time())

    def _request(self, connection: Connection, session: FetchSession, asked: Asked) -> tuple[int, SessionRequest]:
        """The version of the request, and the session's part of it."""
        topics, wanted = self._cluster.topics, {}
        with_ids = connection.version_for(ApiKey.FETCH) > FETCH_WITHOUT_IDS
        max_bytes = min(self._config.max_partition_fetch_bytes, self.budget.limit)
        for state, _ in asked:
            partition = state.partition
            info = topics.get(partition.topic)
            topic_id = info.topic_id if info is not None else NO_TOPIC_ID
            with_ids = with_ids and topic_id != NO_TOPIC_ID
            epoch = self._cluster.leader_epoch(partition)
            wanted[partition] = Wanted(topic_id, state.fetch_offset, epoch, max_bytes)
        version = connection.version_for(ApiKey.FETCH, at_most=1 << 15 if with_ids else FETCH_WITHOUT_IDS)
        return version, session.ask(wanted, with_ids=with_ids)

    def _rest(self, node: int) -> None:
        _, backoff = self._resting.get(node, (0.0, self._cluster.policy.backoff()))
        self._resting[node] = (anyio.current_time() + backoff.next_delay(), backoff)
        for state in self._states.values():
            if state.replica == node:
                state.replica = None

    def _take_in(self, response: Any, session: FetchSession, asked: Asked, node: int, size: int) -> None:
        if self._closed:
            return
        parts = {
            TopicPartition(topic.topic or session.name_of(topic.topic_id) or "", part.partition_index): part
            for topic in response.responses
            for part in topic.partitions
        }
        code = code_of(response.error_code)
        if not session.answered(code, response.session_id, parts.keys()):
            if code not in _SESSION_REJECTED:
                if not code.retriable:
                    self.fail(error_for(code, "a fetch was rejected", api="Fetch", node=node))
                self._refresh_due = True
                self._rest(node)
            return
        frame = Frame(self.budget, size + _FRAME_OVERHEAD_BYTES)
        for state, jumps in asked:
            part = parts.get(state.partition)
            if part is None or state.jumps != jumps or self._states.get(state.partition) is not state:
                continue
            code = code_of(part.error_code)
            if code is ErrorCode.NONE:
                self._arrive(state, part, frame)
            else:
                self._rejected(state, part, code, node, response.node_endpoints)
        self.announce()

    def _arrive(self, state: PartitionState, part: Any, frame: Frame) -> None:
        if part.preferred_read_replica >= 0:
            state.replica = part.preferred_read_replica
            state.replica_until = anyio.current_time() + self._cluster.config.metadata_max_age_ms / 1000
            return
        if len(part.records or b""):
            self._responses += 1
            state.fetched_at = self._responses
        state.arrive(part, self._config.isolation_level, self._config.check_crcs, frame)
        self._backoff.reset()

    def _rejected(self, state: PartitionState, part: Any, code: ErrorCode, node: int, endpoints: Any) -> None:
        """Handle a partition's error: find a new position or a new leader, or leave it to the program."""
        state.retry_at = anyio.current_time() + self._backoff.next_delay()
        if state.replica is not None and code in _REPLICA_WRONG:
            state.replica, state.retry_at = None, 0.0
        elif code is ErrorCode.OFFSET_OUT_OF_RANGE:
            state.log_start_offset = max(state.log_start_offset, part.log_start_offset)
            if state.chunks:
                state.held_back = True  # the program reads what was fetched before; then one more request decides
            else:
                self._finder.out_of_range(state, node)
        elif code in _NEW_LEADER and self._hinted(state, part.current_leader, endpoints):
            state.retry_at = 0.0
        elif code is ErrorCode.CORRUPT_MESSAGE or not (code.retriable or code is ErrorCode.UNKNOWN_SERVER_ERROR):
            state.error = error_for(code, f"{state.partition} cannot be read", api="Fetch", node=node)
        else:
            self._refresh_due = True

    def _hinted(self, state: PartitionState, leader: Any, endpoints: Any) -> bool:
        """Whether the response named the new leader (KIP-951)."""
        if leader is None:
            return False
        return self._cluster.leader_hint(state.partition, leader.leader_id, leader.leader_epoch, endpoints or ())

    def close_sessions(self, background: Background) -> None:
        """Close the fetch sessions at the brokers, within one second."""
        self._closed = True
        purposes = [f"{self._purpose}-fetch-{number}" for number in range(SLOTS_PER_BROKER)]
        closing = [
            (node, purpose, request)
            for node, slots in self._slots.items()
            for slot, purpose in zip(slots, purposes, strict=True)
            if (request := slot.session.close()) is not None
        ]
        background.start_soon(end_sessions, self._cluster, self._config, closing, purposes)
