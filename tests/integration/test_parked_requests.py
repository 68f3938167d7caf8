"""Joins that wait for other members: they are answered from another connection's request, without their own tasks.

What comes behind such a request, or instead of its answer, must find the connection as it would be otherwise.
"""

from collections.abc import Iterator

import pytest

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from fencepost.protocol.messages.api12_heartbeat import HeartbeatRequest
from fencepost.protocol.messages.api14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from fencepost.protocol.messages.api18_api_versions import ApiVersionsRequest
from tests.kit.broker_process import BrokerProcess
from tests.kit.wire import ConnectionEnded, Wire

JOIN, HEARTBEAT, SYNC, API_VERSIONS = 11, 12, 14, 18
JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION = 9, 5, 4


@pytest.fixture(params=["os", "fsync"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """With `fsync` an answer may have to wait for the disk as well."""
    settings = {"durability": request.param, "group.initial.rebalance.delay.ms": "0"}
    with BrokerProcess(tmp_path_factory.mktemp("parked"), settings=settings) as running:
        yield running


@pytest.fixture
def two(broker: BrokerProcess) -> Iterator[tuple[Wire, Wire]]:
    with Wire(broker.connect(), client_id="one") as one, Wire(broker.connect(), client_id="other") as other:
        one.socket.settimeout(100)
        other.socket.settimeout(100)
        yield one, other


def join_request(member_id: str, said: bytes = b"s") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=said)],
    )


def sync_request(member_id: str, generation: int, *members: str) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id="g",
        generation_id=generation,
        member_id=member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[SyncGroupRequestAssignment(member_id=name, assignment=name.encode()) for name in members],
    )


def promised(wire: Wire) -> str:
    answer = wire.call(JOIN, JOIN_VERSION, join_request(""))
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    member_id: str = answer.member_id
    return member_id


def leader_of_a_stable_group(wire: Wire) -> str:
    member_id = promised(wire)
    joined = wire.call(JOIN, JOIN_VERSION, join_request(member_id))
    synced = wire.call(SYNC, SYNC_VERSION, sync_request(member_id, joined.generation_id, member_id))
    assert synced.assignment == member_id.encode()
    return member_id


def test_what_stands_behind_a_parked_join_is_answered_after_it_g1(two: tuple[Wire, Wire]) -> None:
    one, other = two
    leader = leader_of_a_stable_group(one)
    follower = promised(other)
    sent = [other.send(JOIN, JOIN_VERSION, join_request(follower))]
    sent += [other.send(API_VERSIONS, 3, ApiVersionsRequest(client_software_name="a", client_software_version="1"))]
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=leader)
    while one.call(HEARTBEAT, HEARTBEAT_VERSION, beat).error_code != ErrorCode.REBALANCE_IN_PROGRESS:
        pass
    joined = one.call(JOIN, JOIN_VERSION, join_request(leader))
    assert {member.member_id for member in joined.members} == {leader, follower}
    first, answer = other.receive(JOIN, JOIN_VERSION)
    second, _ = other.receive(API_VERSIONS, 3)
    assert [first, second] == sent
    assert (answer.error_code, answer.generation_id, answer.leader) == (ErrorCode.NONE, 2, leader)
    # a parked Sync likewise, whose answer must be on the disk first
    sent = [other.send(SYNC, SYNC_VERSION, sync_request(follower, 2))]
    sent += [
        other.send(HEARTBEAT, HEARTBEAT_VERSION, HeartbeatRequest(group_id="g", generation_id=2, member_id=follower))
    ]
    assert one.call(SYNC, SYNC_VERSION, sync_request(leader, 2, leader, follower)).assignment == leader.encode()
    first, synced = other.receive(SYNC, SYNC_VERSION)
    second, alive = other.receive(HEARTBEAT, HEARTBEAT_VERSION)
    assert [first, second] == sent
    assert (synced.assignment, alive.error_code) == (follower.encode(), ErrorCode.NONE)


def test_a_member_that_is_gone_while_its_join_is_parked_harms_no_other_g1(
    broker: BrokerProcess, two: tuple[Wire, Wire]
) -> None:
    one, other = two
    leader = leader_of_a_stable_group(one)
    follower = promised(other)
    other.send(JOIN, JOIN_VERSION, join_request(follower))
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=leader)
    while one.call(HEARTBEAT, HEARTBEAT_VERSION, beat).error_code != ErrorCode.REBALANCE_IN_PROGRESS:
        pass
    other.socket.close()
    joined = one.call(JOIN, JOIN_VERSION, join_request(leader))
    assert (joined.error_code, joined.generation_id) == (ErrorCode.NONE, 2)
    assert one.call(SYNC, SYNC_VERSION, sync_request(leader, 2, leader)).error_code == ErrorCode.NONE
    with Wire(broker.connect()) as another:
        assert promised(another)
    assert "unexpected error" not in broker.log()


def test_a_broker_that_stops_answers_the_joins_that_wait(broker: BrokerProcess, two: tuple[Wire, Wire]) -> None:
    one, other = two
    leader_of_a_stable_group(one)
    follower = promised(other)
    other.send(JOIN, JOIN_VERSION, join_request(follower))
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=follower)
    with Wire(broker.connect()) as another:  # what is asked later is answered later: so the Join waits by now
        another.call(HEARTBEAT, HEARTBEAT_VERSION, beat)
    broker.stop()
    _, answer = other.receive(JOIN, JOIN_VERSION)
    assert answer.error_code == ErrorCode.NOT_COORDINATOR
    with pytest.raises(ConnectionEnded):
        other.receive_frame()


def test_members_that_join_again_and_again_say_and_hear_what_is_new_g1(two: tuple[Wire, Wire]) -> None:
    """From the third time on their requests are known by their bytes; what is new in them is not."""
    one, other = two
    leader = leader_of_a_stable_group(one)
    follower = promised(other)
    for generation in range(2, 8):
        said = [bytes([generation]) * (50 * generation), bytes([generation, generation])]
        sent = other.send(JOIN, JOIN_VERSION, join_request(follower, said[1]))
        beat = HeartbeatRequest(group_id="g", generation_id=generation - 1, member_id=leader)
        while one.call(HEARTBEAT, HEARTBEAT_VERSION, beat).error_code != ErrorCode.REBALANCE_IN_PROGRESS:
            pass
        joined = one.call(JOIN, JOIN_VERSION, join_request(leader, said[0]))
        assert [(member.member_id, member.metadata) for member in joined.members] == [
            (leader, said[0]),
            (follower, said[1]),
        ]
        correlation_id, answer = other.receive(JOIN, JOIN_VERSION)
        assert (correlation_id, answer.member_id, answer.leader) == (sent, follower, leader)
        assert answer.generation_id == joined.generation_id == generation
        stale = other.call(SYNC, SYNC_VERSION, sync_request(follower, generation - 1))
        assert stale.error_code == ErrorCode.ILLEGAL_GENERATION
        sent = other.send(SYNC, SYNC_VERSION, sync_request(follower, generation))
        one.call(SYNC, SYNC_VERSION, sync_request(leader, generation, leader, follower))
        correlation_id, synced = other.receive(SYNC, SYNC_VERSION)
        assert (correlation_id, synced.error_code, synced.assignment) == (sent, ErrorCode.NONE, follower.encode())
        alive = HeartbeatRequest(group_id="g", generation_id=generation, member_id=follower)
        assert other.call(HEARTBEAT, HEARTBEAT_VERSION, alive).error_code == ErrorCode.NONE
