"""DeleteGroups (42): delete empty groups."""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Array, Int16, Int32, Request, Response, String, Struct

DeleteGroupsRequest = Request(
    ApiKey.DELETE_GROUPS,
    "groups_names" / Array(String),
)

DeletableGroupResult = Struct(
    "DeletableGroupResult",
    "group_id" / String,
    "error_code" / Int16,
)

DeleteGroupsResponse = Response(
    ApiKey.DELETE_GROUPS,
    "throttle_time_ms" / Int32,
    "results" / Array(DeletableGroupResult),
)
