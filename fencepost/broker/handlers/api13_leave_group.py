"""LeaveGroup (13): remove members from a group.

v0-5 are served. v0-2 name one member, and its error is the response's error. v3 brings many members, also named by
instance id (KIP-345), each with its own error; v5 brings a reason for the log (KIP-800).
"""

from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import Broker
from fencepost.coordinator.group.commands import MemberName
from fencepost.protocol.messages.api13_leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

BATCH_SINCE = 3


async def handle(node: Broker, request: LeaveGroupRequest, context: RequestContext) -> LeaveGroupResponse:
    if context.api_version < BATCH_SINCE:
        error, errors = await node.groups.classic.leave(request.group_id, [MemberName(request.member_id)])
        return LeaveGroupResponse(error_code=error or errors[0])
    names = [MemberName(member.member_id, member.group_instance_id, member.reason) for member in request.members]
    error, errors = await node.groups.classic.leave(request.group_id, names)
    return LeaveGroupResponse(
        error_code=error,
        members=[
            MemberResponse(member_id=name.member_id, group_instance_id=name.group_instance_id, error_code=code)
            for name, code in zip(names, errors, strict=False)
        ],
    )
