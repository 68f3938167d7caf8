"""DeleteGroups (42): delete empty groups."""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Int16, Int32, RequestValue, ResponseValue, String, Value


class DeleteGroupsRequest(RequestValue["DeleteGroupsResponse"], api=ApiKey.DELETE_GROUPS):
    groups_names: list[String] = []


class DeletableGroupResult(Value):
    group_id: String = ""
    error_code: Int16 = 0


class DeleteGroupsResponse(ResponseValue, api=ApiKey.DELETE_GROUPS):
    throttle_time_ms: Int32 = 0
    results: list[DeletableGroupResult] = []
