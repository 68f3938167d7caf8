"""ListGroups (16): all groups of a broker.

v4 filters by state (KIP-518), v5 by type (KIP-848).
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Array, Int16, Int32, Request, Response, Since, String, Struct

ListGroupsRequest = Request(
    ApiKey.LIST_GROUPS,
    "states_filter" / Since(4, Array(String)),
    "types_filter" / Since(5, Array(String)),
)

ListedGroup = Struct(
    "ListedGroup",
    "group_id" / String,
    "protocol_type" / String,
    "group_state" / Since(4, String),
    "group_type" / Since(5, String),
)

ListGroupsResponse = Response(
    ApiKey.LIST_GROUPS,
    "throttle_time_ms" / Since(1, Int32),
    "error_code" / Int16,
    "groups" / Array(ListedGroup),
)
