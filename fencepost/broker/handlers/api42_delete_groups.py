"""DeleteGroups (42): delete empty groups with their offsets.

v0-2 are served; they differ in encoding only.
"""

from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import HasGroups
from fencepost.protocol.messages.api42_delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


async def handle(node: HasGroups, request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse:
    """Delete each group that is empty."""
    errors = await node.groups.admin.delete_groups(request.groups_names)
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=group_id, error_code=error)
            for group_id, error in zip(request.groups_names, errors, strict=True)
        ]
    )
