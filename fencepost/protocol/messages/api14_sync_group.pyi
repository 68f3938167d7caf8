"""Written by tests/architecture/message_stubs.py from the declarations in api14_sync_group.py."""

from fencepost.protocol.schema import RequestValue, ResponseValue, Value

class SyncGroupRequestAssignment(Value):
    member_id: str
    assignment: bytes
    def __init__(self, *, member_id: str = ..., assignment: bytes = ...) -> None: ...

class SyncGroupRequest(RequestValue[SyncGroupResponse]):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: list[SyncGroupRequestAssignment]
    def __init__(
        self,
        *,
        group_id: str = ...,
        generation_id: int = ...,
        member_id: str = ...,
        group_instance_id: str | None = ...,
        protocol_type: str | None = ...,
        protocol_name: str | None = ...,
        assignments: list[SyncGroupRequestAssignment] = ...,
    ) -> None: ...

class SyncGroupResponse(ResponseValue):
    throttle_time_ms: int
    error_code: int
    protocol_type: str | None
    protocol_name: str | None
    assignment: bytes
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        protocol_type: str | None = ...,
        protocol_name: str | None = ...,
        assignment: bytes = ...,
    ) -> None: ...
