"""Written by tests/architecture/message_stubs.py from the declarations in api13_leave_group.py."""

from fencepost.protocol.schema import RequestValue, ResponseValue, Value

class MemberIdentity(Value):
    member_id: str
    group_instance_id: str | None
    reason: str | None
    def __init__(
        self, *, member_id: str = ..., group_instance_id: str | None = ..., reason: str | None = ...
    ) -> None: ...

class LeaveGroupRequest(RequestValue[LeaveGroupResponse]):
    group_id: str
    member_id: str
    members: list[MemberIdentity]
    def __init__(self, *, group_id: str = ..., member_id: str = ..., members: list[MemberIdentity] = ...) -> None: ...

class MemberResponse(Value):
    member_id: str
    group_instance_id: str | None
    error_code: int
    def __init__(self, *, member_id: str = ..., group_instance_id: str | None = ..., error_code: int = ...) -> None: ...

class LeaveGroupResponse(ResponseValue):
    throttle_time_ms: int
    error_code: int
    members: list[MemberResponse]
    def __init__(
        self, *, throttle_time_ms: int = ..., error_code: int = ..., members: list[MemberResponse] = ...
    ) -> None: ...
