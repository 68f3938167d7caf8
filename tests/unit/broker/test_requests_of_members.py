"""A member's small requests do not pass through its connection's buffer, in whatever pieces they come (row G1)."""

import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from fencepost.broker.network.answers import Answer
from fencepost.broker.network.frames import LEAST_FREE_BYTES, FrameBuffer
from fencepost.broker.network.outgoing import Outgoing
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from fencepost.protocol.messages.api12_heartbeat import HeartbeatRequest
from fencepost.protocol.messages.api14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from fencepost.testing import Broker
from tests.kit.wire import Wire

JOIN, HEARTBEAT, SYNC = 11, 12, 14
VERSION = {JOIN: 9, HEARTBEAT: 4, SYNC: 5}


class Member(Wire):
    """The only member of a group, which has said everything so often that it is known."""

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
def test_a_large_one_takes_the_way_of_all_requests(member: Member, size: int) -> None:
    for _ in range(3):
        member.rejoin(bytes(size))
        assert member.call(*member.beat()).error_code == ErrorCode.NONE


def test_another_request_on_the_same_connection_is_answered_as_ever(member: Member) -> None:
    member.create_topic("t")
    assert member.offset_of("t", -1).offset == 0
    assert member.call(*member.beat()).error_code == ErrorCode.NONE


def test_what_was_received_by_other_means_is_cut_into_frames_like_the_rest() -> None:
    frames = FrameBuffer(1 << 20)
    assert frames.is_fresh
    frames.put(b"\0\0\0\3abc\0\0\0\2d")
    assert not frames.is_fresh
    assert bytes(frames.next_frame() or b"") == b"abc"
    assert frames.next_frame() is None
    frames.space()[:1] = b"e"
    frames.received(1)
    assert bytes(frames.next_frame() or b"") == b"de"
    assert frames.is_fresh


async def test_an_answer_that_the_socket_does_not_take_waits_and_those_after_it_stay_behind() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        sending = Outgoing(SimpleNamespace(now=0.0, node=None), ours)  # type: ignore[arg-type]
        answers = [bytes([number]) * 15_000 for number in range(50)]
        for number, answer in enumerate(answers):
            assert sending._put(Answer([answer], len(answer)) if number % 10 == 9 else answer) is None
        assert 0 < len(sending._out) < len(answers)
        received = b""
        with trio.fail_after(100):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(sending._flush)
                while len(received) < sum(map(len, answers)):
                    await trio.lowlevel.wait_readable(theirs)
                    received += theirs.recv(1 << 20)
        assert received == b"".join(answers)
        assert sending._put(b"at once") is None
        assert theirs.recv(100) == b"at once"
