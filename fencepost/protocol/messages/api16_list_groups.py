"""ListGroups (16): all groups of a broker.

v4 filters by state (KIP-518), v5 by type (KIP-848).
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Int16, Int32, RequestValue, ResponseValue, String, Value, since


class ListGroupsRequest(RequestValue["ListGroupsResponse"], api=ApiKey.LIST_GROUPS):
    states_filter: list[String] = since(4)
    types_filter: list[String] = since(5)


class ListedGroup(Value):
    group_id: String = ""
    protocol_type: String = ""
    group_state: String = since(4)
    group_type: String = since(5)


class ListGroupsResponse(ResponseValue, api=ApiKey.LIST_GROUPS):
    throttle_time_ms: Int32 = since(1)
    error_code: Int16 = 0
    groups: list[ListedGroup] = []
