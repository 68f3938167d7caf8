"""Talks to the leaders of a queue's partitions, one request at a time with each: ShareFetch and ShareAcknowledge."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import anyio
import anyio.lowlevel

from fencepost.client.config import QueueConfig
from fencepost.client.core.acknowledgements import AcknowledgeType
from fencepost.client.core.held_records import Sent
from fencepost.client.core.partitions import NO_LEADER
from fencepost.client.core.share_session import SESSION_ERRORS, Place, ShareSession
from fencepost.client.errors import ConnectionLostError, KafkaError, RetriableError, code_of, error_for
from fencepost.client.network.cluster import Cluster
from fencepost.client.network.retry import Backoff
from fencepost.client.queues.arrivals import Arrivals, Arrived
from fencepost.client.queues.hand import Hand
from fencepost.client.queues.membership import ShareMembership
from fencepost.client.queues.metrics import ShareMetrics
from fencepost.client.queues.share_requests import SINCE, acknowledge_request, fetch_request
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition

_WAIT_WITH_RECORDS_IN_HAND_MS = 100
"""The longest wait of a fetch while acknowledgements may come up, which the parked request would hold back."""
_LOOK_AGAIN_S = 1.0
_LOCK_S = 30.0
"""The default of `group.share.record.lock.duration.ms`, for a response that names none."""


class _Leader:
    """One broker: the member's session with it, and the pause after a failure."""

    def __init__(self, node: int, backoff: Backoff) -> None:
        self.node = node
        self.session = ShareSession()
        self.backoff = backoff
        self.rests_until = -math.inf
        self.is_over = False


class Exchange:
    """The requests of one queue. `run` ends once the queue is stopping and all acknowledgements are answered."""

    def __init__(
        self,
        cluster: Cluster,
        config: QueueConfig,
        topics: Sequence[str],
        hand: Hand,
        membership: ShareMembership,
        purpose: str,
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._topics = topics
        self._hand = hand
        self._membership = membership
        self._purpose = f"{purpose}-share"
        self._who = hand.who
        self._arrivals = Arrivals(cluster, config, hand)
        self._leaders: dict[int, _Leader] = {}
        self._resting: dict[Place, float] = {}
        self._refresh_due = False
        self._lock_s = _LOCK_S
        self.metrics = ShareMetrics()
        self.is_over = anyio.Event()

    async def run(self) -> None:
        """Keep the metadata fresh, and talk to each leader."""
        hand = self._hand
        backoff = self._cluster.policy.loop("finding the queue's partitions")
        try:
            async with anyio.create_task_group() as nursery:
                while not hand.is_done:
                    changed = hand.changed
                    for node in {self._leader_of(place) for place in self._places()} - {NO_LEADER}:
                        if node not in self._leaders:
                            self._leaders[node] = _Leader(node, self._cluster.policy.backoff())
                            nursery.start_soon(self._serve, self._leaders[node])
                    if self._refresh_due or any(self._leader_of(place) == NO_LEADER for place in self._places()):
                        await self._refresh(backoff)
                    with anyio.move_on_after(_LOOK_AGAIN_S):
                        await changed.wait()
        finally:
            self.is_over.set()

    async def _refresh(self, backoff: Any) -> None:
        self._refresh_due = False
        try:
            await self._cluster.refresh(self._topics)
        except RetriableError as error:
            self._refresh_due = True
            await backoff.failed(error)
        except KafkaError as error:
            self._hand.fail(error)
        else:
            await backoff.pause()
            self._hand.notify()

    def _places(self) -> set[Place]:
        return self._hand.held.waiting() | self._membership.machine.assignment

    def _leader_of(self, place: Place) -> int:
        name = self._cluster.names.get(place[0])
        return NO_LEADER if name is None else self._cluster.leader(TopicPartition(name, place[1]))

    # -- one leader

    async def _serve(self, leader: _Leader) -> None:
        hand = self._hand
        while True:
            now = anyio.current_time()
            changed, look_at = hand.changed, hand.held.look(now)
            hand.report_lost()
            if hand.is_done:
                await self._close(leader)
                return
            request = None if leader.rests_until > now else self._next(leader, now)
            if request is None:
                wakes_at = max(min(look_at, now + _LOOK_AGAIN_S), leader.rests_until)
                with anyio.CancelScope(deadline=wakes_at):
                    await changed.wait()
                    await anyio.sleep_until(leader.rests_until)
                continue
            try:
                await request()
                await anyio.lowlevel.checkpoint()  # another leader may take the room that this one gave back
            except RetriableError as error:
                if isinstance(error, ConnectionLostError):
                    leader.session.lost()
                self._rest(leader)
            except KafkaError as error:
                hand.fail(error)
                self._rest(leader)

    def _rest(self, leader: _Leader) -> None:
        leader.rests_until = anyio.current_time() + leader.backoff.next_delay()
        self._refresh_due = True
        self._hand.notify()

    def _next(self, leader: _Leader, now: float) -> Callable[[], Any] | None:
        """The next request to this leader; None: nothing is due.

        Acknowledgements go with a fetch. They go alone if there is nothing to fetch, or if some of them renew a lock:
        such a request may not fetch (KIP-1222). A session is opened without them.
        """
        held, session = self._hand.held, leader.session

        def due(places: Iterable[Place]) -> set[Place]:
            return {
                place
                for place in places
                if self._resting.get(place, now) <= now and self._leader_of(place) == leader.node
            }

        wanted, waiting = due(self._membership.machine.assignment), due(held.waiting())
        room = self._room() if wanted and self._hand.failure is None else 0
        alone = not room or not waiting <= wanted or held.has_renewals(waiting)
        if alone and session.is_open and (apart := held.take(waiting)):
            return lambda: self._acknowledge(leader, apart)
        if not room and not (waiting and not session.is_open):
            return None
        sent = held.take(waiting) if session.is_open else {}
        return lambda: self._fetch(leader, wanted, sent, room)

    def _room(self) -> int:
        """An equal part for each broker that waits for none, so that parked fetches leave room for other brokers."""
        room = self._hand.room()
        return max(room // max(len(self._leaders), 1), min(room, 1))

    async def _fetch(self, leader: _Leader, wanted: set[Place], sent: dict[Place, list[Sent]], room: int) -> None:
        hand, config = self._hand, self._config
        wait_ms = 0 if sent else config.fetch_max_wait_ms  # the response to acknowledgements waits for the records
        if hand.held.in_flight or not leader.session.is_open:
            wait_ms = min(wait_ms, _WAIT_WITH_RECORDS_IN_HAND_MS)
        request = fetch_request(
            self._who, config, leader.session.fetch(wanted), sent, room, wait_ms, anyio.current_time()
        )
        hand.reserved += room
        sent_at = anyio.current_time()
        try:
            response = await self._cluster.ask(
                leader.node,
                request,
                purpose=self._purpose,
                at_least=SINCE,
                timeout_s=self._cluster.request_timeout_s + wait_ms / 1000,
            )
        except BaseException:
            self._unanswered(sent)
            raise
        finally:
            hand.reserved -= room
        self._lock_s = response.acquisition_lock_timeout_ms / 1000 or self._lock_s
        if not self._answered(leader, response, sent, "ShareFetch"):
            return
        left = dict(sent)
        arrived: list[Arrived] = []
        for topic in response.responses:
            for part in topic.partitions:
                place = bytes(topic.topic_id), part.partition_index
                if (acknowledged := left.pop(place, None)) is not None:
                    self._acknowledged(acknowledged, code_of(part.acknowledge_error_code), sent_at)
                if part.error_code:
                    self._rejected(place, part, response.node_endpoints, leader, "ShareFetch")
                elif part.acquired_records:
                    arrived.append(self._arrivals.hold(place, part, self._lock_s, response.delays))
        self._unanswered(left)
        hand.report_lost()
        hand.notify()
        fetches = self.metrics.fetches
        size = sum(len(one.records) for one in arrived)
        fetches.fetched(anyio.current_time() - sent_at, size, response.throttle_time_ms)
        for one in arrived:
            count = await self._arrivals.take_in(one)
            fetches.records_consumed += count  # not in one statement: others add to it meanwhile
            hand.notify()

    async def _acknowledge(self, leader: _Leader, sent: dict[Place, list[Sent]]) -> None:
        hand = self._hand
        renews = any(one.kind is AcknowledgeType.RENEW for part in sent.values() for one in part)
        request = acknowledge_request(
            self._who, leader.session.acknowledge(), sent, anyio.current_time(), renews=renews
        )
        sent_at = anyio.current_time()
        try:
            response = await self._cluster.ask(leader.node, request, purpose=self._purpose, at_least=SINCE)
        except BaseException:
            self._unanswered(sent)
            raise
        self._lock_s = response.acquisition_lock_timeout_ms / 1000 or self._lock_s
        if not self._answered(leader, response, sent, "ShareAcknowledge"):
            return
        left = dict(sent)
        for topic in response.responses:
            for part in topic.partitions:
                place = bytes(topic.topic_id), part.partition_index
                if (acknowledged := left.pop(place, None)) is not None:
                    code = code_of(part.error_code)
                    self._acknowledged(acknowledged, code, sent_at)
                    if code.retriable:
                        self._rejected(place, part, response.node_endpoints, leader, "ShareAcknowledge")
        self._unanswered(left)
        hand.report_lost()
        hand.notify()

    def _acknowledged(self, sent: list[Sent], code: ErrorCode, sent_at: float) -> None:
        self.metrics.acknowledgements += len(sent)
        self.metrics.refused += len(sent) if code else 0
        self._hand.held.answered(sent, code, sent_at, self._lock_s)

    def _unanswered(self, sent: dict[Place, list[Sent]]) -> None:
        for part in sent.values():
            self._hand.held.unanswered(part)

    def _answered(self, leader: _Leader, response: Any, sent: dict[Place, list[Sent]], api: str) -> bool:
        """Whether the response as a whole is no error. Raises it if no new session mends it."""
        code = code_of(response.error_code)
        leader.session.answered(code)
        if code is ErrorCode.NONE:
            leader.backoff.reset()
            return True
        self._unanswered(sent)
        if code in SESSION_ERRORS and code is not ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            return False
        what = f"queue of {self._config.group_id}: a request was rejected"
        raise error_for(code, response.error_message or what, api=api, node=leader.node)

    def _rejected(self, place: Place, part: Any, endpoints: Any, leader: _Leader, api: str) -> None:
        """One partition's error: its leader moved, or it is not ready. An error that stays is the program's."""
        code = code_of(part.error_code)
        name = self._cluster.names.get(place[0])
        if code.retriable or code is ErrorCode.UNKNOWN_SERVER_ERROR:
            hint = part.current_leader
            partition = None if name is None else TopicPartition(name, place[1])
            if partition is None or not self._cluster.leader_hint(
                partition, hint.leader_id, hint.leader_epoch, endpoints
            ):
                self._resting[place] = anyio.current_time() + leader.backoff.next_delay()
                self._refresh_due = True
            return
        what = f"{name}-{place[1]} cannot be read: {part.error_message or code.name}"
        self._hand.fail(error_for(code, what, api=api, node=leader.node))

    async def _close(self, leader: _Leader) -> None:
        """End the session, which releases what the broker has acquired for this member meanwhile."""
        epoch = leader.session.close()
        if epoch is None:
            return
        request = acknowledge_request(self._who, epoch, {}, anyio.current_time(), renews=False)
        try:
            await self._cluster.ask(leader.node, request, purpose=self._purpose, at_least=SINCE)
        except KafkaError:
            return  # a lost connection ends the session as well

    def release(self) -> None:
        """Close its connections."""
        self._cluster.release(self._purpose)
