"""DeleteGroups (42): forget empty groups with their offsets.

v0-3 are served; v3 says in words why a group stays.
"""

from typing import TYPE_CHECKING, Any

from fencepost.broker.context import RequestContext
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api42_delete_groups import DeletableGroupResult, DeleteGroupsResponse

if TYPE_CHECKING:
    from fencepost.broker.node import Node

WORDS = {
    ErrorCode.NON_EMPTY_GROUP: "The group has members.",
    ErrorCode.GROUP_ID_NOT_FOUND: "There is no such group.",
}


async def handle(node: "Node", request: Any, context: RequestContext) -> Any:
    """Delete each group that is empty."""
    errors = await node.groups.delete_groups(request.groups_names)
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=group_id, error_code=error, error_message=_why(error))
            for group_id, error in zip(request.groups_names, errors, strict=True)
        ]
    )


def _why(error: ErrorCode) -> str | None:
    """In words; the code's own name where there are no better ones."""
    return WORDS.get(error, error.name) if error else None
