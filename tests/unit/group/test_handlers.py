"""JoinGroup to DeleteGroups as they are asked and answered at every version they are served in (rows G1, G2, G11)."""

import pytest

from fencepost.broker.handlers import api11_join_group as join_handler
from fencepost.broker.handlers import api14_sync_group as sync_handler
from fencepost.broker.network.dispatch import Dispatch
from fencepost.coordinator.group.commands import JoinReply, SyncReply
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    api11_join_group,
    api12_heartbeat,
    api13_leave_group,
    api14_sync_group,
    api15_describe_groups,
    api16_list_groups,
    api42_delete_groups,
)
from fencepost.protocol.schema import EncodeError
from tests.unit.group.handler_kit import ALL_OPERATIONS, GROUP_APIS, Node, versions


def test_every_group_api_is_served_at_the_versions_of_the_first_tier() -> None:
    expected = {8: (0, 10), 9: (1, 10), 11: (0, 9), 12: (0, 4), 13: (0, 5), 14: (0, 5), 15: (0, 6), 16: (0, 5)}
    expected |= {28: (0, 6), 42: (0, 2), 47: (0, 0)}
    served = {api.key: api.served for api in Dispatch().served if api.key in GROUP_APIS}
    assert served == expected


def test_what_is_not_served_is_not_advertised_g9_g10() -> None:
    """Streams groups (88, 89, 93): a client finds out at once."""
    assert not {88, 89, 93} & {api.key for api in Dispatch().served}


@pytest.mark.parametrize("version", versions(11))
async def test_join_sends_newcomers_back_from_v4_on_and_all_in_the_end(node: Node, version: int) -> None:
    answer = await node.join(version, "")
    if version >= 4:
        assert (answer.error_code, answer.generation_id) == (ErrorCode.MEMBER_ID_REQUIRED, -1)
        answer = await node.join(version, answer.member_id)
    assert answer.error_code == ErrorCode.NONE
    assert (answer.generation_id, answer.leader, answer.protocol_name) == (1, answer.member_id, "range")
    assert [(one.member_id, one.metadata) for one in answer.members] == [(answer.member_id, b"m")]
    assert answer.protocol_type == ("consumer" if version >= 7 else None)
    [member] = node.world.group().members.values()  # type: ignore[union-attr]
    assert member.rebalance_timeout_ms == (60_000 if version >= 1 else 10_000)
    assert (member.client_id, member.client_host) == ("c", "/127.0.0.1")


@pytest.mark.parametrize("version", versions(11))
async def test_a_refused_join_fits_every_version(node: Node, version: int) -> None:
    answer = await node.join(version, "stranger")
    assert (answer.error_code, answer.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "stranger")
    assert answer.protocol_name == (None if version >= 7 else "")


@pytest.mark.parametrize(("version", "skips"), [(5, False), (8, False), (9, True)])
async def test_a_static_leader_that_comes_back_may_skip_the_assignment_from_v9_on(
    node: Node, version: int, skips: bool
) -> None:
    first = await node.join(5, "", "i")
    await node.sync(5, first)
    back = await node.join(version, "", "i")
    assert (back.error_code, back.generation_id, back.skip_assignment) == (ErrorCode.NONE, 1, skips)
    assert (back.leader == back.member_id) is skips


@pytest.mark.parametrize("version", versions(14))
async def test_sync_gives_the_assignment_in_every_version(node: Node, version: int) -> None:
    member_id, generation = await node.one_member()
    joined = api11_join_group.JoinGroupResponse(member_id=member_id, generation_id=generation)
    answer = await node.sync(version, joined)
    assert (answer.error_code, answer.assignment) == (ErrorCode.NONE, b"A")
    assert answer.protocol_name == ("range" if version >= 5 else None)


async def test_sync_v5_must_name_its_protocol_kip_559(node: Node) -> None:
    member_id, generation = await node.one_member()
    request = api14_sync_group.SyncGroupRequest(group_id="g", generation_id=generation, member_id=member_id)
    assert (await node.ask(14, 5, request)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert (await node.ask(14, 4, request)).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", versions(12))
async def test_heartbeats_are_answered_in_every_version(node: Node, version: int) -> None:
    member_id, generation = await node.one_member()
    for asked, error in ((generation, ErrorCode.NONE), (generation + 1, ErrorCode.ILLEGAL_GENERATION)):
        request = api12_heartbeat.HeartbeatRequest(group_id="g", generation_id=asked, member_id=member_id)
        assert (await node.ask(12, version, request)).error_code == error


@pytest.mark.parametrize("version", versions(13))
async def test_leaving_is_one_members_until_v2_and_many_members_from_v3_on(node: Node, version: int) -> None:
    member_id, _ = await node.one_member()
    for expected in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID):
        identity = api13_leave_group.MemberIdentity(member_id=member_id)
        request = api13_leave_group.LeaveGroupRequest(group_id="g", member_id=member_id, members=[identity])
        if version >= 3:
            request.member_id = ""
        else:
            request.members = []
        answer = await node.ask(13, version, request)
        if version >= 3:
            assert answer.error_code == ErrorCode.NONE
            assert [(one.member_id, one.error_code) for one in answer.members] == [(member_id, expected)]
        else:
            assert answer.error_code == expected


@pytest.mark.parametrize("version", versions(15))
async def test_describing_says_dead_of_an_unknown_group_and_an_error_from_v6_on(node: Node, version: int) -> None:
    member_id, _ = await node.one_member()
    asks = version >= 3
    request = api15_describe_groups.DescribeGroupsRequest(groups=["g", "?"], include_authorized_operations=asks)
    known, unknown = (await node.ask(15, version, request)).groups
    assert (known.error_code, known.group_state, known.protocol_data) == (ErrorCode.NONE, "Stable", "range")
    assert [(one.member_id, one.member_assignment) for one in known.members] == [(member_id, b"A")]
    assert known.authorized_operations == (ALL_OPERATIONS if asks else -(2**31))
    assert unknown.group_state == "Dead"
    assert unknown.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE)
    assert unknown.error_message == ("Group ? not found." if version >= 6 else None)


@pytest.mark.parametrize("version", versions(15))
async def test_a_lost_log_is_told_in_every_version_g11(node: Node, version: int) -> None:
    """Only an unknown group is no error below v6: a group of which nothing can be said is not Dead."""
    await node.world.commit(1)
    node.world.log_of().lost = ErrorCode.COORDINATOR_NOT_AVAILABLE
    [group] = (await node.ask(15, version, api15_describe_groups.DescribeGroupsRequest(groups=["g"]))).groups
    assert group.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("version", versions(16))
async def test_listing_filters_by_state_from_v4_and_by_type_from_v5_on(node: Node, version: int) -> None:
    await node.one_member()
    filters: dict[str, list[str]] = {}
    if version >= 4:
        filters["states_filter"] = ["stable"]
    if version >= 5:
        filters["types_filter"] = ["Classic"]
    answer = await node.ask(16, version, api16_list_groups.ListGroupsRequest(**filters))
    assert [(group.group_id, group.protocol_type) for group in answer.groups] == [("g", "consumer")]
    assert answer.groups[0].group_state == ("Stable" if version >= 4 else "")
    if version >= 4:
        other = await node.ask(16, version, api16_list_groups.ListGroupsRequest(states_filter=["Empty"]))
        assert other.groups == []


@pytest.mark.parametrize("version", versions(42))
async def test_deleting_takes_empty_groups_only(node: Node, version: int) -> None:
    await node.one_member()
    answer = await node.ask(42, version, api42_delete_groups.DeleteGroupsRequest(groups_names=["g", "?"]))
    assert [(one.group_id, one.error_code) for one in answer.results] == [
        ("g", ErrorCode.NON_EMPTY_GROUP),
        ("?", ErrorCode.GROUP_ID_NOT_FOUND),
    ]


@pytest.mark.parametrize("version", versions(11))
@pytest.mark.parametrize("member_id", ["m", "m" * 126, "m" * 127, "m" * 40_000, "\u00fc"])
def test_a_followers_answer_is_what_the_codec_makes_of_it(version: int, member_id: str) -> None:
    """Its bytes are put together from those of the generation and the id (KIP-482 for lengths from v6 on)."""
    reply = JoinReply(member_id, ErrorCode.NONE, 7, "consumer", "range", "leader")
    message = api11_join_group.JoinGroupResponse
    whole = message(
        generation_id=7, protocol_type="consumer", protocol_name="range", leader="leader", member_id=member_id
    )
    if version < 6 and len(member_id) > 32_767:
        with pytest.raises(EncodeError, match="member_id"):
            message.encode(join_handler.response(version, reply), version)
        return
    answer = join_handler.response(version, reply)
    assert b"".join(answer.parts) == message.encode(whole, version)


@pytest.mark.parametrize("version", versions(14))
@pytest.mark.parametrize("size", [0, 1, 126, 127, 20_000])
def test_an_assignment_is_answered_as_the_codec_would(version: int, size: int) -> None:
    message = api14_sync_group.SyncGroupResponse
    whole = message(protocol_type="consumer", protocol_name="range", assignment=b"x" * size)
    answer = sync_handler.response(version, SyncReply(ErrorCode.NONE, "consumer", "range", b"x" * size))
    assert b"".join(answer.parts) == message.encode(whole, version)
