"""Members of groups over bare sockets, one for each: they do what a Java consumer does, without fetching."""

import time
import uuid
from collections.abc import Sequence
from typing import Any

from bench.raw import RawConnection, decoded, framed
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from fencepost.protocol.messages.api12_heartbeat import HeartbeatRequest
from fencepost.protocol.messages.api13_leave_group import LeaveGroupRequest, MemberIdentity
from fencepost.protocol.messages.api14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from fencepost.protocol.messages.api68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from fencepost.protocol.registry import API_BY_KEY

VERSION = {
    ApiKey.JOIN_GROUP: 9,
    ApiKey.HEARTBEAT: 4,
    ApiKey.LEAVE_GROUP: 5,
    ApiKey.SYNC_GROUP: 5,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: 1,
}
JOINING, LEAVING = 0, -1
"""Member epochs that say so (KIP-848)."""
SUBSCRIPTION = b"\x00\x03" + bytes(60)
"""Stands for what a consumer sends: opaque to the broker, of the size of one topic's name and some partitions."""
SESSION_TIMEOUT_MS, REBALANCE_TIMEOUT_MS = 45_000, 60_000


class Member(RawConnection):
    """One member and its connection; one request at a time is under way, as with any client."""

    def __init__(self, address: str, group_id: str) -> None:
        super().__init__(address)
        self.group_id = group_id
        self.member_id = ""
        self.generation = -1
        """Or the member's epoch."""
        self.stable = False
        """It may beat."""
        self.waits_for = 0
        """The API whose answer is under way, or 0."""
        self._sent = 0.0
        self._beat = b""

    def fileno(self) -> int:
        """For a selector."""
        return self._socket.fileno()

    def join(self) -> None:
        """Ask for a place."""
        raise NotImplementedError

    def leave(self) -> None:
        """Give the place up; whoever joins on this connection later is somebody new."""
        raise NotImplementedError

    def beat(self, now: float) -> None:
        """Say that one is alive."""
        raise NotImplementedError

    def take(self) -> float | None:
        """Receive an answer and do what follows from it; the seconds of a heartbeat's round trip."""
        raise NotImplementedError

    @staticmethod
    def are_whole(group: Sequence[Any]) -> bool:
        """Whether a group of such members has come through its rebalance; all of them are stable."""
        return len({member.generation for member in group}) == 1

    def _ask(self, api_key: int, request: Any) -> None:
        self.waits_for = api_key
        self.send(framed(API_BY_KEY[api_key], VERSION[api_key], request))

    def _answer(self) -> tuple[int, Any]:
        api_key, self.waits_for = self.waits_for, 0
        return api_key, decoded(API_BY_KEY[api_key], VERSION[api_key], self.receive())

    def _expect(self, code: int, api_key: int) -> None:
        if code:
            raise RuntimeError(f"{API_BY_KEY[api_key].name} was answered with error {code}")


class ClassicMember(Member):
    """Of the classic protocol: join, sync, beat; join again when a beat says so."""

    def __init__(self, address: str, group_id: str) -> None:
        super().__init__(address, group_id)
        self._subscription = SUBSCRIPTION

    def join(self, subscription: bytes | None = None) -> None:
        """Ask for a place in the next generation, perhaps with a new subscription."""
        self.stable = False
        self._subscription = subscription or self._subscription
        protocol = JoinGroupRequestProtocol(name="range", metadata=self._subscription)
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[protocol],
        )
        self._ask(ApiKey.JOIN_GROUP, request)

    def leave(self) -> None:
        self.stable = False
        self._ask(
            ApiKey.LEAVE_GROUP,
            LeaveGroupRequest(group_id=self.group_id, members=[MemberIdentity(member_id=self.member_id)]),
        )

    def beat(self, now: float) -> None:
        self.waits_for, self._sent = ApiKey.HEARTBEAT, now
        self.send(self._beat)

    def take(self) -> float | None:
        api_key, answer = self._answer()
        if api_key == ApiKey.HEARTBEAT:
            seconds = time.perf_counter() - self._sent
            if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
                self.join()
            else:
                self._expect(answer.error_code, ApiKey.HEARTBEAT)
            return seconds
        if api_key == ApiKey.JOIN_GROUP:
            self._joined(answer)
        elif api_key == ApiKey.SYNC_GROUP and answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.join()
        elif api_key == ApiKey.SYNC_GROUP:
            self._expect(answer.error_code, ApiKey.SYNC_GROUP)
            self.stable = True
        else:
            self._expect(answer.error_code, ApiKey.LEAVE_GROUP)
            self.member_id = ""
        return None

    def _joined(self, answer: Any) -> None:
        self.member_id = answer.member_id
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            return self.join()
        self._expect(answer.error_code, ApiKey.JOIN_GROUP)
        self.generation = answer.generation_id
        beat = HeartbeatRequest(group_id=self.group_id, generation_id=self.generation, member_id=self.member_id)
        self._beat = framed(API_BY_KEY[ApiKey.HEARTBEAT], VERSION[ApiKey.HEARTBEAT], beat)
        given = [SyncGroupRequestAssignment(member_id=one.member_id, assignment=SUBSCRIPTION) for one in answer.members]
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[] if answer.skip_assignment else given,
        )
        return self._ask(ApiKey.SYNC_GROUP, request)


class ConsumerMember(Member):
    """Of the consumer protocol (KIP-848): it beats, and owns at once whatever an answer assigns to it."""

    topic = ""
    """What all of them subscribe to."""

    def __init__(self, address: str, group_id: str) -> None:
        super().__init__(address, group_id)
        self.held: list[int] = []
        """Its partitions of the topic."""
        self._owned: list[Any] | None = None
        """What the next beat must name: an assignment that the broker does not know to have arrived."""

    def join(self) -> None:
        self.member_id = str(uuid.uuid4())
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=JOINING,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            subscribed_topic_names=[self.topic],
            topic_partitions=[],
        )
        self._ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, request)

    def leave(self) -> None:
        self.stable, self.held = False, []
        request = ConsumerGroupHeartbeatRequest(group_id=self.group_id, member_id=self.member_id, member_epoch=LEAVING)
        self._ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, request)

    def beat(self, now: float) -> None:
        self.waits_for, self._sent = ApiKey.CONSUMER_GROUP_HEARTBEAT, now
        self.send(self._beat)

    def take(self) -> float | None:
        api_key, answer = self._answer()
        self._expect(answer.error_code, api_key)
        if answer.member_epoch == LEAVING:
            return None
        seconds = time.perf_counter() - self._sent if self.stable else None
        told = answer.assignment
        if not self.stable or told is not None or answer.member_epoch != self.generation or self._owned is not None:
            self.stable, self.generation = True, answer.member_epoch
            self._owned = None if told is None else told.topic_partitions
            if told is not None:
                self.held = [partition for one in told.topic_partitions for partition in one.partitions]
            self._beat = self._next_beat()
        return seconds

    @staticmethod
    def are_whole(group: Sequence[Any]) -> bool:
        """Whether each has one partition; the broker takes its time for that, and until then nothing has changed."""
        held = sorted(member.held for member in group)
        return held == [[number] for number in range(len(group))] and Member.are_whole(group)

    def _next_beat(self) -> bytes:
        """Names what it owns where that has changed, as clients do; later ones say only that it is there."""
        owned = self._owned
        partitions = (
            None
            if owned is None
            else [TopicPartitions(topic_id=one.topic_id, partitions=list(one.partitions)) for one in owned]
        )
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.generation,
            topic_partitions=partitions,
        )
        return framed(API_BY_KEY[ApiKey.CONSUMER_GROUP_HEARTBEAT], VERSION[ApiKey.CONSUMER_GROUP_HEARTBEAT], request)
