"""DeleteGroups (42): forget empty groups with their offsets.

v0-2 are served; they differ in form only.
"""

from typing import TYPE_CHECKING, Any

from fencepost.broker.network.context import RequestContext
from fencepost.protocol.messages.api42_delete_groups import DeletableGroupResult, DeleteGroupsResponse

if TYPE_CHECKING:
    from fencepost.broker.node import Node


async def handle(node: "Node", request: Any, context: RequestContext) -> Any:
    """Delete each group that is empty."""
    errors = await node.groups.delete_groups(request.groups_names)
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=group_id, error_code=error)
            for group_id, error in zip(request.groups_names, errors, strict=True)
        ]
    )
