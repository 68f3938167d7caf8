"""What a member of a group sends again and again is answered each time, in whatever pieces it comes (row G1)."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from fencepost.broker.network.frames import LEAST_FREE_BYTES
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from fencepost.protocol.messages.api12_heartbeat import HeartbeatRequest
from fencepost.protocol.messages.api14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from fencepost.testing import Broker
from tests.kit.wire import Wire

JOIN, HEARTBEAT, SYNC = 11, 12, 14
VERSION = {JOIN: 9, HEARTBEAT: 4, SYNC: 5}


class Member(Wire):
    """The only member of a group, which has sent each request several times."""

    member_id, generation = "", -1

    def settle(self) -> None:
        for number in range(4):
            self.rejoin(b"subscription %d" % number)
            for _ in range(3):
                assert self.call(*self.beat()).error_code == ErrorCode.NONE

    def rejoin(self, subscription: bytes) -> None:
        answer = self.call(*self.joining(subscription))
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            answer = self.call(*self.joining(subscription))
        assert answer.error_code == ErrorCode.NONE
        [only] = answer.members
        assert (only.member_id, only.metadata) == (self.member_id, subscription)
        self.generation = answer.generation_id
        answer = self.call(*self.syncing())
        assert (answer.error_code, answer.assignment) == (ErrorCode.NONE, b"mine")

    def joining(self, subscription: bytes) -> tuple[int, int, Any]:
        protocol = JoinGroupRequestProtocol(name="range", metadata=subscription)
        fields = {"session_timeout_ms": 45_000, "rebalance_timeout_ms": 60_000, "protocol_type": "consumer"}
        request = JoinGroupRequest(group_id="g", member_id=self.member_id, protocols=[protocol], **fields)
        return JOIN, VERSION[JOIN], request

    def syncing(self) -> tuple[int, int, Any]:
        request = SyncGroupRequest(
            group_id="g",
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[SyncGroupRequestAssignment(member_id=self.member_id, assignment=b"mine")],
        )
        return SYNC, VERSION[SYNC], request

    def beat(self, generation: int | None = None) -> tuple[int, int, Any]:
        generation = self.generation if generation is None else generation
        request = HeartbeatRequest(group_id="g", generation_id=generation, member_id=self.member_id)
        return HEARTBEAT, VERSION[HEARTBEAT], request


@pytest.fixture
def member() -> Iterator[Member]:
    with (
        Broker({"group.initial.rebalance.delay.ms": "0"}) as broker,
        Member(socket.create_connection(("127.0.0.1", broker.port), 100)) as member,
    ):
        member.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
        member.settle()
        yield member


def test_a_request_may_come_in_pieces(member: Member) -> None:
    _, data = member.frame(*member.beat())
    for at in range(1, len(data)):
        number, data = member.frame(*member.beat())
        member.socket.sendall(data[:at])
        member.socket.sendall(data[at:])
        answered, answer = member.receive(HEARTBEAT, VERSION[HEARTBEAT])
        assert (answered, answer.error_code) == (number, ErrorCode.NONE)


def test_many_may_come_at_once_and_are_answered_in_their_order(member: Member) -> None:
    generations = [member.generation, member.generation + 1] * 100
    frames = [member.frame(*member.beat(generation)) for generation in generations]
    member.socket.sendall(b"".join(data for _, data in frames))
    for (number, _), generation in zip(frames, generations, strict=True):
        answered, answer = member.receive(HEARTBEAT, VERSION[HEARTBEAT])
        right = generation == member.generation
        assert (answered, answer.error_code) == (number, ErrorCode.NONE if right else ErrorCode.ILLEGAL_GENERATION)


@pytest.mark.parametrize("size", [LEAST_FREE_BYTES // 2, LEAST_FREE_BYTES, 3 * LEAST_FREE_BYTES, 200_000])
def test_a_large_one_is_answered_as_a_small_one(member: Member, size: int) -> None:
    for _ in range(3):
        member.rejoin(bytes(size))
        assert member.call(*member.beat()).error_code == ErrorCode.NONE


def test_another_request_on_the_same_connection_is_answered_as_ever(member: Member) -> None:
    member.create_topic("t")
    assert member.offset_of("t", -1).offset == 0
    assert member.call(*member.beat()).error_code == ErrorCode.NONE
