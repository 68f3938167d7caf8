"""ListGroups (16): all groups of a broker.

v4 filters by state (KIP-518), v5 by type (KIP-848).
"""

from fencepost.protocol.schema import Array, Int16, Int32, Request, Response, Since, String, Struct

VERSIONS = (0, 5)
FLEXIBLE = 3

ListGroupsRequest = Request(
    16,
    "ListGroupsRequest",
    VERSIONS,
    FLEXIBLE,
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
    16,
    "ListGroupsResponse",
    VERSIONS,
    FLEXIBLE,
    "throttle_time_ms" / Since(1, Int32),
    "error_code" / Int16,
    "groups" / Array(ListedGroup),
)
