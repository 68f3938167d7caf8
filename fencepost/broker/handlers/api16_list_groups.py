"""ListGroups (16): all groups of this broker.

v0-5 are served; v4 filters by state (KIP-518), v5 by type (KIP-848).
"""

from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import Broker
from fencepost.broker.security.checks import denied, is_allowed
from fencepost.protocol.admin_enums import AclOperation, AclResourceType
from fencepost.protocol.messages.api16_list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


async def handle(node: Broker, request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    """List the groups that match the filters and that the client may see."""
    groups = await node.groups.admin.list_groups(request.states_filter, request.types_filter)
    if not is_allowed(node, context, AclOperation.DESCRIBE, AclResourceType.CLUSTER, log_denial=False):
        names = [group.group_id for group in groups]
        hidden = denied(node, context, AclOperation.DESCRIBE, AclResourceType.GROUP, names, log_denial=False)
        groups = [group for group in groups if group.group_id not in hidden]
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
