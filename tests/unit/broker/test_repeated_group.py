"""What a member says again is understood by its bytes as the codec understands it, or not at all (row G1)."""

import time
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.broker.handlers import api11_join_group, api14_sync_group
from fencepost.broker.metrics.counters import Metrics
from fencepost.broker.network.answers import Answer, answer_of
from fencepost.broker.network.context import Endpoint, RequestContext
from fencepost.broker.network.repeated_group import FRAME_BYTES_MAX, HEARTBEAT, JOIN, SYNC, RepeatedGroup
from fencepost.coordinator.group.turn import Join, JoinReply, Sync, SyncReply
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.headers import read_request_header, write_request_header
from fencepost.protocol.messages.api11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from fencepost.protocol.messages.api12_heartbeat import HeartbeatRequest, HeartbeatResponse
from fencepost.protocol.messages.api14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from fencepost.protocol.registry import API_BY_KEY

VERSIONS = [
    (key, version) for key in (JOIN, SYNC, HEARTBEAT) for version in range(API_BY_KEY[key].request.versions[1] + 1)
]


class Groups:
    """A coordinator that notes what it is asked, and says what it was told to say."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.error = ErrorCode.NONE

    def ask_join(self, command: Join) -> JoinReply:
        self.asked.append(command)
        return JoinReply(command.member_id, self.error, 7, "consumer", "range", "the leader")

    def ask_sync(self, command: Sync) -> SyncReply:
        self.asked.append(command)
        return SyncReply(self.error, "consumer", "range", b"given")

    def heartbeat(self, *asked: Any) -> ErrorCode:
        self.asked.append(asked)
        return self.error


class Side:
    """One connection's memory, and the general way beside it."""

    def __init__(self) -> None:
        self.groups = Groups()
        self.metrics = Metrics()
        clock = SimpleNamespace(monotonic=time.monotonic)
        self.repeated = RepeatedGroup(SimpleNamespace(groups=self.groups, metrics=self.metrics, clock=clock))  # type: ignore[arg-type]

    def understood(self, frame: bytes) -> tuple[Any, RequestContext]:
        header = read_request_header(frame)
        api = API_BY_KEY[header.api_key]
        request, _ = api.request.decode_prefix(frame, header.api_version, header.body_start)
        numbers = (header.api_key, header.api_version, header.correlation_id)
        return request, RequestContext(*numbers, header.client_id, "1.2.3.4", Endpoint("h", 1))

    def learn(self, *frames: bytes) -> None:
        for frame in frames:
            self.repeated.learn(memoryview(frame), *self.understood(frame))

    def answer(self, frame: bytes) -> bytes | None:
        answer = self.repeated.answer(memoryview(frame))
        assert answer is None or isinstance(answer, bytes | Answer)
        return b"".join(answer.parts) if isinstance(answer, Answer) else answer

    def expected(self, frame: bytes) -> tuple[Any, bytes]:
        """What the general way asks the coordinator, and what it answers."""
        request, context = self.understood(frame)
        groups, version = Groups(), context.api_version
        groups.error = self.groups.error
        response: Any
        if context.api_key == JOIN:
            reply = groups.ask_join(api11_join_group.command(request, context))
            response = api11_join_group.response(version, reply)
        elif context.api_key == SYNC:
            response = api14_sync_group.response(version, groups.ask_sync(api14_sync_group.command(request)))
        else:
            names = (request.group_id, request.member_id, request.group_instance_id, request.generation_id)
            response = HeartbeatResponse(error_code=groups.heartbeat(*names))
        answer = answer_of(API_BY_KEY[context.api_key], version, context.correlation_id, response)
        return groups.asked[0], b"".join(answer.parts)


def framed(key: int, version: int, number: int, request: Any) -> bytes:
    api = API_BY_KEY[key]
    return write_request_header(api, version, number, "client") + api.request.encode(request, version)


def join(version: int, number: int, *said: bytes, member_id: str = "m-1", **more: Any) -> bytes:
    protocols = [JoinGroupRequestProtocol(name=f"p{at}", metadata=one) for at, one in enumerate(said)]
    names = {"group_id": "g", "member_id": member_id, "protocol_type": "consumer", "session_timeout_ms": 30_000}
    return framed(JOIN, version, number, JoinGroupRequest(**names, protocols=protocols, **more))


def sync(version: int, number: int, generation: int, **more: Any) -> bytes:
    names = {"group_id": "g", "member_id": "m-1", "protocol_type": "consumer", "protocol_name": "range"}
    return framed(SYNC, version, number, SyncGroupRequest(**(names | {"generation_id": generation} | more)))


def beat(version: int, number: int, generation: int, **more: Any) -> bytes:
    request = HeartbeatRequest(group_id="g", generation_id=generation, member_id="m-1", **more)
    return framed(HEARTBEAT, version, number, request)


def said(key: int, version: int, number: int) -> bytes:
    """What the member says the `number`th time; what is new in it is new each time, and of another length."""
    if key == JOIN:
        return join(version, number, bytes(number * 40), bytes([number]) * number)
    return sync(version, number, number) if key == SYNC else beat(version, number, number)


@pytest.mark.parametrize(("key", "version"), VERSIONS)
@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS])
def test_what_is_said_the_third_time_is_known_in_every_version_g1(key: int, version: int, error: ErrorCode) -> None:
    side = Side()
    side.groups.error = error
    side.learn(said(key, version, 1))
    assert side.answer(said(key, version, 2)) is None
    side.learn(said(key, version, 2))
    for number in (3, 4, 90):
        frame = said(key, version, number)
        asked, answer = side.expected(frame)
        assert side.answer(frame) == answer
        assert side.groups.asked.pop() == asked
    assert side.metrics.requests[key] == 3


@pytest.mark.parametrize(
    "other",
    [
        join(9, 5, b"x", b"y", b"z"),
        join(9, 5, b"x"),
        join(9, 5, b"x", b"y", member_id="m-2"),
        join(9, 5, b"x", b"y", reason="rebalance enforced"),
        join(9, 5, b"x", b"y", group_instance_id="i"),
        join(8, 5, b"x", b"y"),
        join(9, 5, b"x", bytes(FRAME_BYTES_MAX)),
        join(9, 5, b"x", b"y") + b"\0",
        join(9, 5, b"x", b"y")[:-1],
        sync(5, 5, 1),
        sync(4, 5, 1),
    ],
)
def test_whatever_differs_in_more_is_not_known_g1(other: bytes) -> None:
    side = Side()
    side.learn(join(9, 1, b"x", b"y"), join(9, 2, b"x", b"y"))
    assert side.answer(join(9, 3, b"x", b"y")) is not None
    side.groups.asked.clear()
    assert side.answer(other) is None
    assert not side.groups.asked


def test_assignments_are_not_learnt_and_a_newcomer_is_not_either_g1() -> None:
    side = Side()
    leader = {"assignments": [SyncGroupRequestAssignment(member_id="m-1", assignment=b"a")]}
    side.learn(*[sync(5, number, 1, **leader) for number in range(3)])
    side.learn(*[join(9, number, b"x", member_id="") for number in range(3)])
    side.learn(*[join(9, number, member_id="m-1") for number in range(3)])  # no protocols
    assert side.answer(sync(5, 4, 1, **leader)) is None
    assert side.answer(join(9, 4, b"x", member_id="")) is None
    assert side.answer(join(9, 4)) is None


def test_who_takes_over_a_connection_is_learnt_anew_g1() -> None:
    side = Side()
    side.learn(join(9, 1, b"x"), join(9, 2, b"x"))
    side.learn(join(9, 3, b"x", member_id="m-2"))
    assert side.answer(join(9, 4, b"x")) is None
    side.learn(join(9, 5, b"x", member_id="m-2"))
    assert side.answer(join(9, 6, b"y", member_id="m-2")) is not None
    assert side.groups.asked[-1].member_id == "m-2"


def test_a_mark_in_what_a_client_names_itself_does_no_harm_g1() -> None:
    """The place of a generation is found by a number that stands for it, which a name could hold as well."""
    mark = (-0x35C6_1E4B).to_bytes(4, "big", signed=True).decode("latin-1")
    side = Side()
    side.learn(*[beat(4, number, 5, group_instance_id=mark) for number in range(2)])
    frame = beat(4, 9, 6, group_instance_id=mark)
    asked, answer = side.expected(frame)
    assert side.answer(frame) in (answer, None)
    assert side.groups.asked in ([asked], [])


@given(st.data())
def test_no_frame_is_understood_in_another_way_than_the_codec_understands_it_g1(data: st.DataObject) -> None:
    """Known requests with bytes changed, put in or left out: what is still taken for known is just what was said."""
    key, version = data.draw(st.sampled_from(VERSIONS))
    side = Side()
    side.learn(said(key, version, 1), said(key, version, 2))
    frame = bytearray(said(key, version, data.draw(st.integers(1, 5))))
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(4, len(frame) - 1))
        match data.draw(st.sampled_from(["change", "put in", "leave out"])):
            case "change":
                frame[at] = data.draw(st.integers(0, 255))
            case "put in":
                frame.insert(at, data.draw(st.integers(0, 255)))
            case _:
                del frame[at]
    answer = side.answer(bytes(frame))
    if answer is not None:
        assert (side.groups.asked[0], answer) == side.expected(bytes(frame))
