"""A queue's membership in its share group: ShareGroupHeartbeat to the group's coordinator."""

import logging
import math

import anyio

from fencepost.client.config import QueueConfig
from fencepost.client.core.share_member import LEAVE, ShareHeartbeat, ShareMember
from fencepost.client.errors import FatalError, KafkaError, RetriableError, code_of, error_for
from fencepost.client.group.membership import LONG_WAIT_S
from fencepost.client.network.cluster import GROUP, Cluster
from fencepost.client.queues.hand import Hand
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api76_share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

_LOG = logging.getLogger(__name__)
_API = "ShareGroupHeartbeat"
_FIRST_INTERVAL_S = 1.0
_WITHOUT_PARTITIONS_S = 0.5
"""The coordinator initializes partitions of a new group in the background: they come with a later response."""
NEEDS = "queues need Apache Kafka 4.2 or later, or fencepost, with the feature share.version"


class ShareMembership:
    """One member, from `run` to `leave`."""

    def __init__(
        self, cluster: Cluster, config: QueueConfig, topics: tuple[str, ...], hand: Hand, purpose: str
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._hand = hand
        self._topics = topics
        self._purpose = purpose
        self.machine = ShareMember(topics)
        self._interval_s = _FIRST_INTERVAL_S
        self._warn_at = math.inf
        self._backoff = cluster.policy.loop(f"being a member of share group {config.group_id!r}")

    async def run(self) -> None:
        """Send heartbeats until cancelled, or until the group rejects this member: then the queue fails."""
        self._warn_at = anyio.current_time() + LONG_WAIT_S
        while self.machine.failure is None:
            sent = self.machine.heartbeat()
            try:
                code = await self._heartbeat(sent)
            except RetriableError as error:
                self.machine.unanswered()
                await self._backoff.failed(error)
                continue
            except KafkaError as error:
                self._hand.fail(error)
                return
            self._hand.notify()
            if code is ErrorCode.NONE:
                self._backoff.reset()
                await self._warn_of_wait()
                await anyio.sleep(
                    self._interval_s if self.machine.assignment else min(self._interval_s, _WITHOUT_PARTITIONS_S)
                )
            else:
                await self._backoff.pause()

    async def _warn_of_wait(self) -> None:
        """Warn once why a member without partitions waits; other warnings report brokers that do not answer."""
        now = anyio.current_time()
        if self.machine.assignment:
            self._warn_at = now + LONG_WAIT_S
        elif now > self._warn_at:
            self._warn_at = math.inf
            _LOG.warning(
                "queue of %s: no partitions of %s for %.0f s. %s",
                self._config.group_id,
                ", ".join(self._topics),
                LONG_WAIT_S,
                await self._reason_of_wait(),
            )

    async def _reason_of_wait(self) -> str:
        try:
            refused = await self._cluster.refresh(self._topics)
        except KafkaError as error:
            return f"Whether they exist is not known now: {error}"
        if refused:
            names = ", ".join(f"{name} ({code.name})" for name, code in sorted(refused.items()))
            return f"Create {names}, or grant its user DESCRIBE and READ; the queue reads it as soon as it can"
        return "The group has not begun to read them: the log of the broker that is its coordinator says why"

    async def _heartbeat(self, sent: ShareHeartbeat) -> ErrorCode:
        response = await self._ask(sent)
        code = code_of(response.error_code)
        assigned = None
        if response.assignment is not None:
            topics = response.assignment.topic_partitions
            assigned = frozenset((bytes(topic.topic_id), number) for topic in topics for number in topic.partitions)
        self.machine.answered(sent, code, response.member_epoch, assigned)
        if response.heartbeat_interval_ms > 0:
            self._interval_s = response.heartbeat_interval_ms / 1000
        if code is ErrorCode.UNSUPPORTED_VERSION:
            raise FatalError(NEEDS, code=code, api=_API)
        if self.machine.failure is not None:
            what = response.error_message or f"share group {self._config.group_id!r} rejected this member"
            raise error_for(code, what, api=_API, broker_message=response.error_message)
        return code

    async def _ask(self, sent: ShareHeartbeat) -> ShareGroupHeartbeatResponse:
        is_full = sent.topics is not None
        request = ShareGroupHeartbeatRequest(
            group_id=self._config.group_id,
            member_id=self._hand.who.member_id,
            member_epoch=sent.epoch,
            rack_id=self._config.client_rack or None if is_full else None,
            subscribed_topic_names=None if sent.topics is None else list(sent.topics),
        )
        group = self._config.group_id
        return await self._cluster.ask_coordinator(
            GROUP, group, request, lambda response: response.error_code, purpose=self._purpose
        )

    async def leave(self) -> None:
        """Leave the group; without a response the broker removes the member when its session ends."""
        sent = self.machine.leave()
        if sent is None:
            return
        assert sent.epoch == LEAVE
        try:
            await self._ask(sent)
        except KafkaError as error:
            _LOG.debug("share group %s: leaving failed: %s", self._config.group_id, error)
