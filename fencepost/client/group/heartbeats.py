"""The membership in a KIP-848 group: all by ConsumerGroupHeartbeat, and the broker assigns (G4)."""

import base64
from functools import partial

import anyio

from fencepost.client.config import ConsumerConfig
from fencepost.client.core.consumer_member import (
    JOIN,
    ConsumerHeartbeat,
    ConsumerMember,
    DesiredSubscription,
    HeartbeatResult,
    TopicIdPartition,
)
from fencepost.client.core.group_steps import Resolve, Step
from fencepost.client.core.group_types import GroupMetadata
from fencepost.client.errors import FencedError, KafkaError, RetriableError, code_of
from fencepost.client.group.membership import Membership, Reader
from fencepost.client.group.subscription import Subscription
from fencepost.client.network.cluster import ByVersion, Cluster
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions

_PATTERN_SINCE = OWN_ID_SINCE = 1
_FIRST_INTERVAL_S = 1.0


def _desired_subscription(subscription: Subscription, assignor: str | None) -> DesiredSubscription:
    return DesiredSubscription(tuple(sorted(subscription.topics)), subscription.pattern, assignor)


class ConsumerMembership(Membership[ConsumerMember]):
    """Carries out the steps of a ConsumerMember."""

    def __init__(
        self, cluster: Cluster, config: ConsumerConfig, subscription: Subscription, reader: Reader, purpose: str
    ) -> None:
        super().__init__(cluster, config, subscription, reader, purpose)
        desired = _desired_subscription(subscription, config.group_remote_assignor)
        self._machine = ConsumerMember("", desired, config.group_instance_id)
        random_bytes = bytes(int(cluster.random.random() * 256) for _ in range(16))
        self._own_id = base64.urlsafe_b64encode(random_bytes).decode().rstrip("=")
        self._interval_s = _FIRST_INTERVAL_S
        self._instance_id_waits_since: float | None = None

    def _identity(self) -> tuple[int, str]:
        machine = self._machine
        return (-1, "") if machine.epoch == JOIN else (machine.epoch, machine.member_id)

    @property
    def _awaits_partitions(self) -> bool:
        return not self._machine.owned

    def _subscribed(self) -> None:
        self._machine.subscribe(_desired_subscription(self._subscription, self._config.group_remote_assignor))

    def _expel(self, reason: str) -> None:
        self._machine.expelled()

    def commit_rejected(self, group: GroupMetadata, code: ErrorCode) -> None:
        self._machine.commit_rejected(group.generation, code)
        self._notify()

    async def _do(self, step: Step) -> None:
        if isinstance(step, Resolve):
            await self._attempt(partial(self._learn_names, step.topic_ids))
        else:
            await self._sleep()

    async def _learn_names(self, topic_ids: frozenset[bytes]) -> None:
        names = self._cluster.names
        if not topic_ids <= names.keys():
            await self._cluster.refresh(self._subscription.topics if self._subscription.pattern is None else None)
        self._machine.named({topic_id: names[topic_id] for topic_id in topic_ids if topic_id in names})
        if not topic_ids & names.keys():
            await self._backoff.pause()  # the topics are new or deleted: a later heartbeat resolves it

    # -- heartbeats

    async def send_heartbeats(self) -> None:
        while not self._failed:
            if not self._machine.heartbeat_is_due or self._away:
                await self._pause()
            if self._machine.sends_heartbeats and not self._away:
                try:
                    await self._heartbeat_once()
                except RetriableError as error:
                    self._machine.unanswered()
                    await self._backoff.failed(error)
                except KafkaError as error:
                    self._fail(error)
                self._notify()

    async def _pause(self) -> None:
        """Wait until the next heartbeat is due; a change in the machine makes it due at once."""
        with anyio.move_on_after(self._interval_s):
            while self._away or not self._machine.heartbeat_is_due:
                await self._wake.wait()

    async def _heartbeat_once(self) -> None:
        sent = self._machine.heartbeat()
        response = await self._ask(
            ByVersion(ApiKey.CONSUMER_GROUP_HEARTBEAT, partial(self._request, sent)),
            purpose=self._purpose,
            at_least=_PATTERN_SINCE if self._subscription.pattern is not None else 0,
        )
        code = code_of(response.error_code)
        assigned: frozenset[TopicIdPartition] | None = None
        if response.assignment is not None:
            topics = response.assignment.topic_partitions
            assigned = frozenset((bytes(topic.topic_id), number) for topic in topics for number in topic.partitions)
        self._machine.answered(sent, HeartbeatResult(code, response.member_id, response.member_epoch, assigned))
        if response.heartbeat_interval_ms > 0:
            self._interval_s = response.heartbeat_interval_ms / 1000
        if code is ErrorCode.NONE:
            self._backoff.reset()
        else:
            await self._backoff.pause()
        self._check_instance_id(response.error_message)

    def _request(self, sent: ConsumerHeartbeat, version: int) -> ConsumerGroupHeartbeatRequest:
        desired = sent.desired
        pattern = None if desired is None else desired.pattern or ""
        member_id = sent.member_id or (self._own_id if version >= OWN_ID_SINCE else "")
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=member_id,
            member_epoch=sent.epoch,
            instance_id=self._config.group_instance_id,
            rebalance_timeout_ms=self._config.max_poll_interval_ms if sent.is_full else -1,
            subscribed_topic_names=None if desired is None else list(desired.topics),
            subscribed_topic_regex=pattern if version >= _PATTERN_SINCE else None,
            server_assignor=None if desired is None else desired.assignor,
            topic_partitions=None if sent.owned is None else _by_topic(sent.owned),
        )

    def _check_instance_id(self, message: str | None) -> None:
        """A group_instance_id is free once its predecessor's session is over; if not, another member uses it."""
        if not self._machine.waits_for_instance_id:
            self._instance_id_waits_since = None
        elif self._instance_id_waits_since is None:
            self._instance_id_waits_since = anyio.current_time()
        elif anyio.current_time() - self._instance_id_waits_since > self._cluster.config.default_api_timeout_ms / 1000:
            code = ErrorCode.UNRELEASED_INSTANCE_ID
            self._fail(
                FencedError(
                    message or "another member has this group_instance_id", code=code, api="ConsumerGroupHeartbeat"
                )
            )

    async def _leave_group(self, reason: str) -> None:
        leave = self._machine.leave_heartbeat()
        if leave is not None:
            await self._send_leave(ByVersion(ApiKey.CONSUMER_GROUP_HEARTBEAT, partial(self._request, leave)))


def _by_topic(places: frozenset[TopicIdPartition]) -> list[TopicPartitions]:
    topics: dict[bytes, list[int]] = {}
    for topic_id, number in sorted(places):
        topics.setdefault(topic_id, []).append(number)
    return [TopicPartitions(topic_id=topic_id, partitions=numbers) for topic_id, numbers in topics.items()]
