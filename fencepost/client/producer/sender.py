"""Sends a producer's batches: which go to which broker now, and what follows from responses and lost connections.

`core.sequences` decides the sequences and their recovery (rows P2 to P7).
"""

import math
from typing import Any

import anyio
from anyio.abc import TaskGroup

from fencepost.client.config import ProducerConfig
from fencepost.client.core.partitions import NO_LEADER
from fencepost.client.core.sequences import Verdict
from fencepost.client.errors import ConnectionLostError, FatalError, KafkaError, RetriableError, code_of
from fencepost.client.network.cluster import Cluster
from fencepost.client.network.connection import Connection
from fencepost.client.network.pending import Pending
from fencepost.client.network.retry import Backoff
from fencepost.client.producer.accumulator import Accumulator, Batch, Queue
from fencepost.client.producer.broker_state import BrokerState, Identity, level_of
from fencepost.client.producer.produce_requests import by_partition, produce_request
from fencepost.client.producer.undelivered import rejection, state_lost, too_late, unanswered, unsplittable
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.batch_header import CorruptBatch
from fencepost.protocol.compression import Compression
from fencepost.protocol.errors import ErrorCode

ZSTD_PRODUCE_VERSION = 7
_IDLE_CHECK_S = 1.0
Pauses = dict[Backoff, float]
"""Until when the partitions of one response wait."""


class Sender:
    """The one task of a producer that sends; it handles responses as they arrive."""

    def __init__(
        self, cluster: Cluster, accumulator: Accumulator, identity: Identity, config: ProducerConfig, purpose: str
    ) -> None:
        self._cluster = cluster
        self._accumulator = accumulator
        self._identity = identity
        self._config = config
        self._purpose = purpose
        self._level = level_of(config)
        self._delivery_timeout_s = config.delivery_timeout_ms / 1000
        self._brokers: dict[int, BrokerState] = {}
        self._wake = anyio.Event()
        self._refreshing, self._refresh_at = False, 0.0
        self._backoff = cluster.policy.backoff()
        self._concurrent_backoff = Backoff(1, cluster.policy.first_ms, cluster.random)  # CONCURRENT_TRANSACTIONS
        self._last_error: KafkaError | None = None
        self._turn = 0
        self.fatal: KafkaError | None = None
        self.in_flight = 0
        self.none_in_flight = anyio.Event()
        self.none_in_flight.set()
        accumulator.changed = self.wake

    def wake(self) -> None:
        """Check again: a batch may be ready to be sent."""
        self._wake.set()

    def fail(self, error: KafkaError) -> None:
        """Nothing can be sent any more: fail all waiting batches and all that follow."""
        if self.fatal is None:
            self.fatal = error
        self._accumulator.drop(error, resend_too=True)
        self._accumulator.memory.release_all()
        self.wake()

    def slow_brokers(self) -> set[int]:
        """Brokers that have accepted no ready batch for `partitioner_availability_timeout` (KIP-794)."""
        limit_s = self._config.partitioner_availability_timeout_ms / 1000
        if not limit_s:
            return set()
        latest = anyio.current_time() - limit_s
        wanted = {self._cluster.leader(partition) for partition in self._accumulator.active}
        return {node for node, broker in self._brokers.items() if broker.stuck_since < latest and node in wanted}

    async def run(self) -> None:
        """Send until cancelled. An unforeseen exception leaves this task."""
        try:
            async with anyio.create_task_group() as nursery:
                while True:
                    self._wake = anyio.Event()
                    wakes_at = self._round(nursery, anyio.current_time())
                    with anyio.CancelScope(deadline=wakes_at):
                        await self._wake.wait()
        finally:
            self._cluster.release(self._purpose)
            self._accumulator.end(unanswered)
            self.fail(KafkaError("the client was closed"))

    # -- rounds

    def _round(self, nursery: TaskGroup, now: float) -> float:
        """Send all that may be sent now; returns the time of the next check."""
        if not self._accumulator.active:
            return math.inf
        if self.fatal is not None:
            self._accumulator.drop(self.fatal, resend_too=True)
            return self._expire(now)
        wakes_at = min(self._expire(now), now + _IDLE_CHECK_S)
        producer = self._identity.current
        if producer is None:
            self._identity.acquire()
            return wakes_at
        by_node, due = self._sendable(nursery, producer, now)
        wakes_at = min(wakes_at, due)
        for node, queues in by_node.items():
            broker = self._brokers.get(node)
            if broker is None:
                broker = self._brokers[node] = BrokerState(node, self._cluster.policy.backoff())
            wakes_at = min(wakes_at, self._fill(nursery, broker, queues, now))
        return wakes_at

    def _expire(self, now: float) -> float:
        """Fail batches whose delivery deadline has passed; returns the next deadline."""
        first = math.inf
        for queue in list(self._accumulator.active.values()):
            for batch in list(queue.unresolved()):
                if batch.given_up:
                    continue
                if batch.expires_at <= now:
                    last, maybe = batch.last_error or self._last_error, batch.may_be_written or batch in queue.in_flight
                    error = too_late(self._delivery_timeout_s, last, may_be_written=maybe)
                    self._accumulator.finish(batch, error, release=queue.give_up(batch))
                else:
                    self._warn(batch, now)
                    first = min(first, batch.expires_at)
            while queue.waiting and queue.waiting[0].expires_at <= now:
                batch = queue.waiting.popleft()
                error = too_late(self._delivery_timeout_s, batch.last_error or self._last_error, may_be_written=False)
                self._accumulator.finish(batch, error)
            if queue.waiting:
                self._warn(queue.waiting[0], now)
                first = min(first, queue.waiting[0].expires_at)
        return first

    def _warn(self, batch: Batch, now: float) -> None:
        if (last_error := batch.last_error or self._last_error) is not None and batch.ready_at < now:
            what, since = f"sending to {batch.queue.partition}", max(batch.created_at, batch.ready_at)
            self._cluster.policy.warnings.failed(what, since, last_error, batch.expires_at)

    def _sendable(
        self, nursery: TaskGroup, producer: tuple[int, int], now: float
    ) -> tuple[dict[int, list[Queue]], float]:
        """The partitions with ready batches, by leader; and when others may have some."""
        by_node: dict[int, list[Queue]] = {}
        wakes_at = math.inf
        for queue in list(self._accumulator.active.values()):
            if not queue.in_flight:
                self._settle_identity(queue, producer)
                producer = self._identity.current or producer
            elif self._identity.transactional_id is not None and queue.producer != producer:
                continue  # unanswered batches belong to a finished transaction: none may follow under its epoch
            due = queue.wakes_at(now)
            if due > now:
                wakes_at = min(wakes_at, due)
                continue
            if self._cluster.is_stale(queue.partition.topic):
                self._ask_for_metadata(nursery, now)
            leader = self._cluster.leader(queue.partition)
            if leader == NO_LEADER:
                self._ask_for_metadata(nursery, now)
                wakes_at = min(wakes_at, now + _IDLE_CHECK_S)
                continue
            by_node.setdefault(leader, []).append(queue)
        return by_node, wakes_at

    def _settle_identity(self, queue: Queue, producer: tuple[int, int]) -> None:
        """With nothing in flight a partition may adopt a new epoch, or need one because of a gap in its sequences."""
        lost: list[Batch] = []
        if queue.producer != producer and (queue.restart or not queue.resend):
            lost = queue.adopt(producer)
        elif queue.needs_epoch():
            if not self._identity.bump():
                self._accumulator.drop_behind_refused(queue)
            elif self._identity.current is None:
                self.wake()
            else:
                lost = queue.adopt(self._identity.current)
        for batch in lost:
            self._accumulator.finish(batch, state_lost(queue.partition, batch.last_error))

    def _fill(self, nursery: TaskGroup, broker: BrokerState, queues: list[Queue], now: float) -> float:
        """Post requests to one broker while there is room; returns the time of the next check."""
        broker.stuck_since = min(broker.stuck_since, now)
        if broker.connection is None or broker.connection.closed:
            if broker.retry_at > now:
                return broker.retry_at
            if not broker.connecting:
                broker.connecting = True
                nursery.start_soon(self._connect, broker)
            return math.inf
        if broker.connection.throttled_until > now:
            return broker.connection.throttled_until  # the broker throttles this client (KIP-219)
        self._turn += 1
        queues = queues[self._turn % len(queues) :] + queues[: self._turn % len(queues)]
        while broker.in_flight < self._config.max_in_flight_requests_per_connection:
            batches = self._take(queues, now)
            if not batches or not self._post(nursery, broker, broker.connection, batches):
                break
            broker.stuck_since = math.inf
            queues = queues[len(batches) :] + queues[: len(batches)]
        return min((queue.wakes_at(now) for queue in queues if queue.wakes_at(now) > now), default=math.inf)

    def _take(self, queues: list[Queue], now: float) -> list[Batch]:
        """One batch of each partition that may send, within `max_request_size`; a single batch may be larger."""
        batches: list[Batch] = []
        left = self._config.max_request_size
        for queue in queues:
            ahead = queue.resend or queue.waiting
            if not ahead or (batches and ahead[0].size_bytes > left):
                continue
            batch = queue.next_batch(now)
            if batch is not None:
                batches.append(batch)
                left -= batch.size_bytes
        return batches

    async def _connect(self, broker: BrokerState) -> None:
        try:
            broker.connection = await self._cluster.connection(broker.node, self._purpose)
            broker.backoff.reset()
            self._last_error = None
            for queue in self._accumulator.queues.values():
                if self._cluster.leader(queue.partition) == broker.node:
                    queue.reconnected()
        except RetriableError as error:
            self._last_error = error
            broker.retry_at = anyio.current_time() + broker.backoff.next_delay()
            await self._refresh_metadata()
        except KafkaError as error:
            self.fail(error)
        finally:
            broker.connecting = False
            self.wake()

    def _ask_for_metadata(self, nursery: TaskGroup, now: float) -> None:
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
            self._last_error = error  # no broker answers now: each batch's deadline limits the retries
        except KafkaError as error:
            self.fail(error)
        finally:
            self._refreshing = False
            self._refresh_at = anyio.current_time() + self._backoff.next_delay()
            self.wake()

    # -- one request

    def _post(self, nursery: TaskGroup, broker: BrokerState, connection: Connection, batches: list[Batch]) -> bool:
        at_least = ZSTD_PRODUCE_VERSION if self._config.compression_type is Compression.ZSTD else 0
        try:
            at_most = self._identity.highest_produce_version
            version = connection.version_for(ApiKey.PRODUCE, at_most=at_most, at_least=at_least)
            request = self._request(version, batches)
            if request is None:
                raise RetriableError("a topic's id is not known yet", code=ErrorCode.UNKNOWN_TOPIC_ID)
            pending = connection.post(version, request)
        except RetriableError as error:
            now = anyio.current_time()
            self._back(batches, error, now + self._backoff.next_delay(), sent=False)
            self._ask_for_metadata(nursery, now)
            return False
        except KafkaError as error:
            self._back(batches, error, anyio.current_time(), sent=False)
            self.fail(error)
            return False
        self._count(batches)
        broker.in_flight, self.in_flight = broker.in_flight + 1, self.in_flight + 1
        self.none_in_flight = anyio.Event() if self.none_in_flight.is_set() else self.none_in_flight
        nursery.start_soon(self._settle, nursery, broker, pending, request, batches)
        return True

    def _count(self, batches: list[Batch]) -> None:
        counters, now = self._accumulator.counters, anyio.current_time()
        counters.requests += 1
        for batch in batches:
            if batch.attempts:
                counters.record_retry += len(batch.records)
            else:
                counters.record_send += len(batch.records)
                counters.batches += 1
                counters.batch_bytes += len(batch.data or b"")
                counters.raw_bytes += batch.size_bytes
                counters.queued(now - batch.created_at)
            batch.attempts += 1

    def _request(self, version: int, batches: list[Batch]) -> Any:
        transactional_id, codec = self._identity.transactional_id, self._config.compression_type
        encoded = [
            (
                batch.queue.partition,
                batch.encode(codec, batch.queue.producer, transactional_id is not None, self._level),
            )
            for batch in batches
        ]
        timeout_ms = self._cluster.config.request_timeout_ms
        return produce_request(version, encoded, self._cluster.topics, transactional_id, timeout_ms)

    def _back(self, batches: list[Batch], error: KafkaError, until: float, *, sent: bool) -> None:
        """These batches got no response; they are resent after a pause."""
        for batch in batches:
            batch.last_error = error
            batch.queue.backoff_until = until
            if batch.queue.unanswered(batch, sent=sent) is Verdict.GONE:
                self._accumulator.release(batch)

    async def _settle(
        self, nursery: TaskGroup, broker: BrokerState, pending: Pending[Any], request: Any, batches: list[Batch]
    ) -> None:
        """Wait for one response, and handle its part for each batch."""
        began = anyio.current_time()
        try:
            response = await pending.wait(self._cluster.request_timeout_s)
        except KafkaError as error:
            until = broker.lost(pending.connection, self._backoff)
            self._back(batches, error, until, sent=not isinstance(error, ConnectionLostError) or error.sent)
            if not isinstance(error, ConnectionLostError):
                self.fail(error)
            self._ask_for_metadata(nursery, anyio.current_time())
        else:
            now = anyio.current_time()
            self._accumulator.counters.answered(now - began, response.throttle_time_ms)
            self._read(nursery, broker, request, response, batches)
        finally:
            broker.in_flight -= 1
            self.in_flight -= 1
            if not self.in_flight:
                self.none_in_flight.set()
            self.wake()

    def _read(self, nursery: TaskGroup, broker: BrokerState, request: Any, response: Any, batches: list[Batch]) -> None:
        responses = by_partition(request, response)
        pauses: Pauses = {}
        stale = False
        for batch in batches:
            partition = batch.queue.partition
            part = responses.get(partition)
            code = ErrorCode.UNKNOWN_SERVER_ERROR if part is None else code_of(part.error_code)
            moved = self._handle(broker, batch, code, part, pauses)
            leader = getattr(part, "current_leader", None) if moved else None
            if leader is not None and leader.leader_id >= 0:
                where = leader.leader_id, leader.leader_epoch, response.node_endpoints or ()
                if self._cluster.leader_hint(partition, *where):
                    batch.queue.backoff_until = 0.0  # the response names the new leader (KIP-951)
                    moved = False
            stale |= moved
        if stale:
            self._ask_for_metadata(nursery, anyio.current_time())

    def _handle(self, broker: BrokerState, batch: Batch, code: ErrorCode, part: Any, pauses: Pauses) -> bool:
        """Handle a batch's part of a response; True if it needs fresh metadata before it is resent.

        `pauses` are those of this response: it counts as one failure, however many partitions it rejects.
        """
        in_transaction = self._identity.transactional_id is not None
        error = rejection(batch, broker.node, code, part, in_transaction=in_transaction)
        match batch.queue.answered(batch, code, in_transaction):
            case Verdict.ACCEPTED:
                batch.base_offset = part.base_offset
                batch.append_time_ms = part.log_append_time_ms
                self._backoff.reset()
                self._concurrent_backoff.reset()
                self._accumulator.finish(batch)
            case Verdict.GONE:
                self._accumulator.release(batch)
            case Verdict.SPLIT:
                self._accumulator.counters.splits += 1
                try:
                    batch.queue.replace(batch, batch.split())
                except CorruptBatch as wrong:  # the program has built it, and its records were not decoded before
                    error = unsplittable(batch, code, wrong)
                    self._accumulator.finish(batch, error, release=batch.queue.give_up(batch))
            case Verdict.AGAIN:
                batch.last_error = error
                if code.retriable or (batch.queue.restart and batch.attempts > 1):
                    pause = self._concurrent_backoff if code is ErrorCode.CONCURRENT_TRANSACTIONS else self._backoff
                    if pause not in pauses:
                        pauses[pause] = anyio.current_time() + pause.next_delay()
                    batch.queue.backoff_until = pauses[pause]
                return code.retriable and code is not ErrorCode.CONCURRENT_TRANSACTIONS
            case Verdict.REJECTED:
                self._accumulator.finish(batch, error)
                if isinstance(error, FatalError) and code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    self.fail(error)
        return False
