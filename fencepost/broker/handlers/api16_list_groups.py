"""ListGroups (16): all groups of this broker.

v0-5 are served; v4 filters by state (KIP-518), v5 by type (KIP-848).
"""

from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import HasGroups
from fencepost.protocol.messages.api16_list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


async def handle(node: HasGroups, request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    """List the groups that match the filters."""
    groups = await node.groups.admin.list_groups(request.states_filter, request.types_filter)
    return ListGroupsResponse(
        groups=[
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.group_type,
            )
            for group in groups
        ]
    )
