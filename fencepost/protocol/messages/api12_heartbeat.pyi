"""Written by tests/architecture/message_stubs.py from the declarations in api12_heartbeat.py."""

from fencepost.protocol.schema import RequestValue, ResponseValue

class HeartbeatRequest(RequestValue[HeartbeatResponse]):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    def __init__(
        self,
        *,
        group_id: str = ...,
        generation_id: int = ...,
        member_id: str = ...,
        group_instance_id: str | None = ...,
    ) -> None: ...

class HeartbeatResponse(ResponseValue):
    throttle_time_ms: int
    error_code: int
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ...) -> None: ...
