"""Sending a producer's batches: who may send what when, and what an answer means for the sequence (rows P2 to P7)."""

import math
from typing import Any, Protocol

import trio

from fencepost.client.accumulator import Accumulator, Batch, PartitionQueue
from fencepost.client.cluster import NO_LEADER, Cluster
from fencepost.client.config import ProducerConfig
from fencepost.client.connection import Connection, Pending
from fencepost.client.errors import (
    FENCED,
    AbortableError,
    AuthorizationError,
    ConnectionLost,
    FatalError,
    KafkaError,
    RetriableError,
    code_of,
    error_for,
)
from fencepost.client.retry import Backoff, gave_up
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.registry import API_BY_KEY
from fencepost.protocol.topics import TopicPartition

PRODUCE = API_BY_KEY[0]
ACKS_ALL = -1
LOST_SEQUENCE = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})
TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
_IDLE_CHECK_S = 1.0


class Identity(Protocol):
    """Under which producer id and epoch batches go out, and what to do when that breaks."""

    @property
    def transactional_id(self) -> str | None:
        """The id that makes batches transactional, or None."""
        ...

    @property
    def current(self) -> tuple[int, int] | None:
        """(producer id, epoch), or None while there is none."""
        ...

    @property
    def highest_produce_version(self) -> int:
        """11 for a transaction whose partitions are added by hand (row T16), else whatever both sides speak."""
        ...

    def acquire(self) -> None:
        """There is no identity: see that there will be one. Called again and again until there is."""
        ...

    def bump(self) -> bool:
        """Move to the next epoch without asking (row P7), or False when that is not this producer's way."""
        ...


class Lane:
    """What goes to one broker: its connection and how many requests are unanswered there."""

    __slots__ = ("backoff", "connecting", "connection", "in_flight", "node", "retry_at")

    def __init__(self, node: int, backoff: Backoff) -> None:
        self.node = node
        self.connection: Connection | None = None
        self.connecting = False
        self.in_flight = 0
        self.retry_at = 0.0
        self.backoff = backoff


class Sender:
    """The one task of a producer that decides what is sent; answers are handled as they come."""

    def __init__(
        self, cluster: Cluster, accumulator: Accumulator, identity: Identity, config: ProducerConfig, purpose: str
    ) -> None:
        self._cluster = cluster
        self._accumulator = accumulator
        self._identity = identity
        self._config = config
        self._purpose = purpose
        self._lanes: dict[int, Lane] = {}
        self._wake = trio.Event()
        self._refreshing = False
        self._refresh_at = 0.0
        self._backoff = cluster.policy.backoff()
        self._trouble: KafkaError | None = None
        self.fatal: KafkaError | None = None
        self.in_flight = 0
        self.quiet = trio.Event()
        self.quiet.set()
        accumulator.changed = self.wake

    def wake(self) -> None:
        """Look again: something may have become sendable."""
        self._wake.set()

    def fail(self, error: KafkaError) -> None:
        """Nothing can be sent any more: fail everything that waits and everything that will come."""
        if self.fatal is None:
            self.fatal = error
        self._accumulator.drop(error, resend_too=True)
        self.wake()

    async def run(self) -> None:
        """Send until cancelled. Exceptions that are nobody's answer leave this task."""
        try:
            async with trio.open_nursery() as nursery:
                while True:
                    self._wake = trio.Event()
                    wakes_at = self._round(nursery, trio.current_time())
                    with trio.move_on_at(wakes_at):
                        await self._wake.wait()
        finally:
            self._cluster.release(self._purpose)

    # -- deciding

    def _round(self, nursery: trio.Nursery, now: float) -> float:
        """Send all that may be sent now; the time at which to look again."""
        if not self._accumulator.active:
            return math.inf
        if self.fatal is not None:
            self._accumulator.drop(self.fatal, resend_too=True)
            return math.inf
        self._expire(now)
        producer = self._identity.current
        if producer is None:
            self._identity.acquire()
            return now + _IDLE_CHECK_S
        by_node, wakes_at = self._sendable(nursery, producer, now)
        wakes_at = min(wakes_at, now + _IDLE_CHECK_S)
        for node, queues in by_node.items():
            lane = self._lanes.get(node)
            if lane is None:
                lane = self._lanes[node] = Lane(node, self._cluster.policy.backoff())
            wakes_at = min(wakes_at, self._fill(nursery, lane, queues, now))
        return wakes_at

    def _expire(self, now: float) -> None:
        """Fail batches whose delivery deadline has passed, unless a request that holds them is unanswered."""
        for queue in list(self._accumulator.active.values()):
            while queue.resend and not queue.in_flight and queue.resend[0].expires_at <= now:
                batch = queue.resend.pop(0)
                queue.gap = True
                self._accumulator.finish(batch, self._too_late(batch))
            while queue.waiting and queue.waiting[0].expires_at <= now:
                self._accumulator.finish(queue.waiting.popleft(), self._too_late(None))

    def _too_late(self, batch: Batch | None) -> KafkaError:
        seconds = self._config.delivery_timeout_ms / 1000
        last = batch.error if batch is not None and batch.error is not None else self._trouble
        if last is not None:
            return gave_up(last, "sending a batch", seconds)
        return RetriableError(f"a batch could not be sent within {seconds:g} s", api="Produce")

    def _sendable(
        self, nursery: trio.Nursery, producer: tuple[int, int], now: float
    ) -> tuple[dict[int, list[PartitionQueue]], float]:
        """The partitions that have something to send, by leader; and when the others may have."""
        by_node: dict[int, list[PartitionQueue]] = {}
        wakes_at = math.inf
        for queue in self._accumulator.active.values():
            if not queue.in_flight:
                self._settle_identity(queue, producer)
                producer = self._identity.current or producer
            due = queue.wakes_at(now)
            if due > now:
                wakes_at = min(wakes_at, due)
                continue
            leader = self._cluster.leader(queue.partition)
            if leader == NO_LEADER:
                self._ask_for_metadata(nursery, now)
                wakes_at = min(wakes_at, now + _IDLE_CHECK_S)
                continue
            by_node.setdefault(leader, []).append(queue)
        return by_node, wakes_at

    def _settle_identity(self, queue: PartitionQueue, producer: tuple[int, int]) -> None:
        """With nothing in flight a partition may take up a new epoch, or need one because its sequence broke."""
        if queue.producer != producer and (queue.restart or not queue.resend):
            queue.adopt(producer)
        elif (queue.restart or (queue.gap and not queue.resend)) and self._identity.bump():
            current = self._identity.current
            if current is not None:
                queue.adopt(current)

    def _fill(self, nursery: trio.Nursery, lane: Lane, queues: list[PartitionQueue], now: float) -> float:
        """Post requests to one broker while there is room; when to look again."""
        if lane.connection is None or lane.connection.closed:
            if lane.retry_at > now:
                return lane.retry_at
            if not lane.connecting:
                lane.connecting = True
                nursery.start_soon(self._connect, lane)
            return math.inf
        while lane.in_flight < self._config.max_in_flight_requests_per_connection:
            batches, size_bytes = [], 0
            for queue in queues:
                if size_bytes >= self._config.max_request_size:
                    break
                batch = queue.next_batch(now)
                if batch is not None:
                    batches.append(batch)
                    size_bytes += batch.size_bytes
            if not batches or not self._post(nursery, lane, lane.connection, batches):
                break
            queues = queues[len(batches) :] + queues[: len(batches)]
        return min((queue.wakes_at(now) for queue in queues if queue.wakes_at(now) > now), default=math.inf)

    async def _connect(self, lane: Lane) -> None:
        try:
            lane.connection = await self._cluster.connection(lane.node, self._purpose)
            lane.backoff.reset()
            self._trouble = None
        except RetriableError as error:
            self._trouble = error
            lane.retry_at = trio.current_time() + lane.backoff.next_delay()
            await self._refresh_metadata()
        except KafkaError as error:
            self.fail(error)
        finally:
            lane.connecting = False
            self.wake()

    def _ask_for_metadata(self, nursery: trio.Nursery, now: float) -> None:
        if not self._refreshing and self._refresh_at <= now:
            self._refreshing = True
            nursery.start_soon(self._refresh_metadata)

    async def _refresh_metadata(self) -> None:
        self._refreshing = True
        try:
            topics = {partition.topic for partition in self._accumulator.active}
            await self._cluster.refresh(topics)
            self._backoff.reset()
        except RetriableError as error:
            self._trouble = error  # nobody answers now: the batches' own deadline decides how long to go on
        except KafkaError as error:
            self.fail(error)
        finally:
            self._refreshing = False
            self._refresh_at = trio.current_time() + self._backoff.next_delay()
            self.wake()

    # -- one request

    def _post(self, nursery: trio.Nursery, lane: Lane, connection: Connection, batches: list[Batch]) -> bool:
        try:
            version = connection.version_for(PRODUCE, at_most=self._identity.highest_produce_version)
            request = self._request(version, batches)
            if request is None:
                raise RetriableError("a topic's id is not known yet", code=ErrorCode.UNKNOWN_TOPIC_ID)
            pending = connection.post(PRODUCE, version, request)
        except RetriableError as error:
            self._not_sent(batches, error)
            self._ask_for_metadata(nursery, trio.current_time())
            return False
        except KafkaError as error:
            for batch in batches:
                batch.queue.put_back(batch)
            self.fail(error)
            return False
        lane.in_flight += 1
        self.in_flight += 1
        self.quiet = trio.Event() if self.quiet.is_set() else self.quiet
        nursery.start_soon(self._settle, nursery, lane, pending, batches)
        return True

    def _request(self, version: int, batches: list[Batch]) -> Any:
        topics: dict[str, Any] = {}
        for batch in batches:
            name, partition = batch.queue.partition
            entry = topics.get(name)
            if entry is None:
                info = self._cluster.topics.get(name)
                if version >= 13 and (info is None or not any(info.topic_id)):
                    return None
                topic_id = info.topic_id if info is not None else bytes(16)
                entry = topics[name] = TopicProduceData(name=name, topic_id=topic_id, partition_data=[])
            data = batch.encode(
                self._config.compression_type, batch.queue.producer, self._identity.transactional_id is not None
            )
            entry.partition_data.append(PartitionProduceData(index=partition, records=data))
        return ProduceRequest(
            transactional_id=self._identity.transactional_id,
            acks=ACKS_ALL,
            timeout_ms=self._cluster.config.request_timeout_ms,
            topic_data=list(topics.values()),
        )

    def _not_sent(self, batches: list[Batch], error: KafkaError) -> None:
        until = trio.current_time() + self._backoff.next_delay()
        for batch in batches:
            batch.error = error
            batch.queue.put_back(batch)
            batch.queue.backoff_until = until

    async def _settle(self, nursery: trio.Nursery, lane: Lane, pending: Pending, batches: list[Batch]) -> None:
        """Wait for one answer and act on what it says of each batch."""
        try:
            answer = await pending.wait(self._cluster.request_timeout_s)
        except KafkaError as error:
            lane.retry_at = trio.current_time() + lane.backoff.next_delay()
            self._not_sent(batches, error)
            if not isinstance(error, ConnectionLost):
                self.fail(error)
            self._ask_for_metadata(nursery, trio.current_time())
        else:
            self._read_answer(nursery, lane, answer, batches)
        finally:
            lane.in_flight -= 1
            self.in_flight -= 1
            if not self.in_flight:
                self.quiet.set()
            self.wake()

    def _read_answer(self, nursery: trio.Nursery, lane: Lane, answer: Any, batches: list[Batch]) -> None:
        said: dict[TopicPartition, Any] = {}
        for topic in answer.responses:
            name = topic.name or self._cluster.names.get(topic.topic_id, "")
            for partition in topic.partition_responses:
                said[TopicPartition(name, partition.index)] = partition
        stale = False
        for batch in batches:
            told = said.get(batch.queue.partition)
            code = ErrorCode.UNKNOWN_SERVER_ERROR if told is None else code_of(told.error_code)
            if told is not None and code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                self._succeeded(batch, told.base_offset, told.log_append_time_ms)
            else:
                stale |= self._refused(lane, batch, code, told)
        if stale:
            self._ask_for_metadata(nursery, trio.current_time())

    # -- one batch

    def _succeeded(self, batch: Batch, base_offset: int, append_time_ms: int) -> None:
        batch.base_offset = base_offset
        batch.append_time_ms = append_time_ms
        batch.queue.in_flight.remove(batch)
        self._backoff.reset()
        self._accumulator.finish(batch)

    def _refused(self, lane: Lane, batch: Batch, code: ErrorCode, told: Any) -> bool:
        """What an error means for a batch; True when fresh metadata is needed before it is sent again."""
        queue = batch.queue
        message = (told.error_message if told is not None else None) or f"{queue.partition} refused a batch"
        in_transaction = self._identity.transactional_id is not None
        if code is ErrorCode.INVALID_PRODUCER_EPOCH and in_transaction:
            # Fenced, or only timed out at the coordinator: InitProducerId after the abort tells which (KIP-588).
            error: KafkaError = AbortableError(message, code=code, api="Produce", node=lane.node)
        else:
            error = error_for(code, message, api="Produce", node=lane.node, in_transaction=in_transaction)
        lost_place = code in LOST_SEQUENCE or (code in FENCED and not in_transaction)
        if lost_place and (not queue.is_first_unresolved(batch) or not in_transaction):
            first = queue.is_first_unresolved(batch)
            self._not_sent([batch], error)
            queue.restart |= first
            return False
        if code in TOO_LARGE and len(batch.records) > 1:
            self._split(batch)
            return False
        if code.retriable and not lost_place:
            self._not_sent([batch], error)
            return code is not ErrorCode.CONCURRENT_TRANSACTIONS
        queue.in_flight.remove(batch)
        queue.gap = True
        self._accumulator.finish(batch, _with_record_errors(error, told))
        if isinstance(error, AuthorizationError | FatalError) and code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self.fail(error)
        return False

    def _split(self, batch: Batch) -> None:
        queue = batch.queue
        queue.put_back(batch)
        place = queue.resend.index(batch)
        halves = batch.split()
        self._accumulator.forget_size(batch, halves)
        queue.resend[place : place + 1] = halves


def _with_record_errors(error: KafkaError, told: Any) -> KafkaError:
    """Name the records that the broker found fault with (row L15) in a note."""
    for entry in (told.record_errors if told is not None else [])[:10]:
        error.add_note(f"record {entry.batch_index} of the batch: {entry.batch_index_error_message or 'invalid'}")
    return error
