"""DescribeGroups (15): members, state and assignments of classic groups.

v0-6 are served. v3 brings the authorized operations, v4 static members. An unknown group is in state Dead; v6 also
returns GROUP_ID_NOT_FOUND for it (KIP-1043).
"""

from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import Broker
from fencepost.broker.security.checks import NOT_ASKED, authorized_operations, denied
from fencepost.coordinator.group.view import DescribedGroup as Description
from fencepost.protocol.admin_enums import AclOperation, AclResourceType
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api15_describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

NOT_FOUND_SINCE = 6


async def handle(node: Broker, request: DescribeGroupsRequest, context: RequestContext) -> DescribeGroupsResponse:
    refused = denied(node, context, AclOperation.DESCRIBE, AclResourceType.GROUP, request.groups)
    described = await node.groups.admin.describe([name for name in request.groups if name not in refused])
    error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    groups = [DescribedGroup(error_code=error, group_id=name) for name in request.groups if name in refused]
    for group in described:
        operations = NOT_ASKED
        if request.include_authorized_operations:
            operations = authorized_operations(node, context, AclResourceType.GROUP, group.group_id)
        groups.append(_group(group, context.api_version, operations))
    return DescribeGroupsResponse(groups=groups)


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
        authorized_operations=NOT_ASKED if error else operations,
    )
