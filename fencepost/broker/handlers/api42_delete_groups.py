"""DeleteGroups (42): delete empty groups with their offsets.

v0-2 are served; they differ in encoding only.
"""

from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import Broker
from fencepost.broker.security.checks import denied
from fencepost.protocol.admin_enums import AclOperation, AclResourceType
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api42_delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


async def handle(node: Broker, request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse:
    refused = denied(node, context, AclOperation.DELETE, AclResourceType.GROUP, request.groups_names)
    errors = iter(await node.groups.admin.delete_groups([name for name in request.groups_names if name not in refused]))
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(
                group_id=name, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED if name in refused else next(errors)
            )
            for name in request.groups_names
        ]
    )
