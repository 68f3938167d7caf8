"""Written by tests/architecture/message_stubs.py from the declarations in api16_list_groups.py."""

from fencepost.protocol.schema import RequestValue, ResponseValue, Value

class ListGroupsRequest(RequestValue[ListGroupsResponse]):
    states_filter: list[str]
    types_filter: list[str]
    def __init__(self, *, states_filter: list[str] = ..., types_filter: list[str] = ...) -> None: ...

class ListedGroup(Value):
    group_id: str
    protocol_type: str
    group_state: str
    group_type: str
    def __init__(
        self, *, group_id: str = ..., protocol_type: str = ..., group_state: str = ..., group_type: str = ...
    ) -> None: ...

class ListGroupsResponse(ResponseValue):
    throttle_time_ms: int
    error_code: int
    groups: list[ListedGroup]
    def __init__(
        self, *, throttle_time_ms: int = ..., error_code: int = ..., groups: list[ListedGroup] = ...
    ) -> None: ...
