"""DeleteGroups (42): forget empty groups."""

from fencepost.protocol.schema import Array, Int16, Int32, Request, Response, String, Struct

VERSIONS = (0, 2)
FLEXIBLE = 2

DeleteGroupsRequest = Request(
    42,
    "DeleteGroupsRequest",
    VERSIONS,
    FLEXIBLE,
    "groups_names" / Array(String),
)

DeletableGroupResult = Struct(
    "DeletableGroupResult",
    "group_id" / String,
    "error_code" / Int16,
)

DeleteGroupsResponse = Response(
    42,
    "DeleteGroupsResponse",
    VERSIONS,
    FLEXIBLE,
    "throttle_time_ms" / Int32,
    "results" / Array(DeletableGroupResult),
)
