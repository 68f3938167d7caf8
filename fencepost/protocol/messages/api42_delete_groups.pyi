"""Written by tests/architecture/message_stubs.py from the declarations in api42_delete_groups.py."""

from fencepost.protocol.schema import RequestValue, ResponseValue, Value

class DeleteGroupsRequest(RequestValue[DeleteGroupsResponse]):
    groups_names: list[str]
    def __init__(self, *, groups_names: list[str] = ...) -> None: ...

class DeletableGroupResult(Value):
    group_id: str
    error_code: int
    def __init__(self, *, group_id: str = ..., error_code: int = ...) -> None: ...

class DeleteGroupsResponse(ResponseValue):
    throttle_time_ms: int
    results: list[DeletableGroupResult]
    def __init__(self, *, throttle_time_ms: int = ..., results: list[DeletableGroupResult] = ...) -> None: ...
