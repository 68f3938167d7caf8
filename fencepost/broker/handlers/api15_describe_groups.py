"""DescribeGroups (15): members, state and assignments of classic groups.

v0-6 are served. v3 brings the authorized operations, v4 static members. An unknown group is in state Dead; v6 also
returns GROUP_ID_NOT_FOUND for it (KIP-1043).
"""

from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import HasGroups
from fencepost.coordinator.group.view import DescribedGroup as Description
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api15_describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

NOT_FOUND_SINCE = 6
NOT_ASKED_FOR = -(2**31)
GROUP_OPERATIONS = sum(1 << operation for operation in (3, 6, 8, 10, 11))
"""Read, Delete, Describe, DescribeConfigs, AlterConfigs: without an authorizer every client may do all of them."""


async def handle(node: HasGroups, request: DescribeGroupsRequest, context: RequestContext) -> DescribeGroupsResponse:
    """Describe each group."""
    described = await node.groups.admin.describe(request.groups)
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED_FOR
    return DescribeGroupsResponse(groups=[_group(group, context.api_version, operations) for group in described])


def _group(group: Description, version: int, operations: int) -> DescribedGroup:
    unknown = group.error is ErrorCode.GROUP_ID_NOT_FOUND
    error = ErrorCode.NONE if unknown and version < NOT_FOUND_SINCE else group.error
    return DescribedGroup(
        error_code=error,
        error_message=group.text if error else None,
        group_id=group.group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in group.members
        ],
        authorized_operations=NOT_ASKED_FOR if error else operations,
    )
