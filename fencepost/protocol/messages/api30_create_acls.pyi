"""Written by tests/architecture/message_stubs.py from the declarations in api30_create_acls.py."""

from fencepost.protocol.schema import RequestValue, ResponseValue, Value

class AclCreation(Value):
    resource_type: int
    resource_name: str
    resource_pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int
    def __init__(
        self,
        *,
        resource_type: int = ...,
        resource_name: str = ...,
        resource_pattern_type: int = ...,
        principal: str = ...,
        host: str = ...,
        operation: int = ...,
        permission_type: int = ...,
    ) -> None: ...

class CreateAclsRequest(RequestValue[CreateAclsResponse]):
    creations: list[AclCreation]
    def __init__(self, *, creations: list[AclCreation] = ...) -> None: ...

class AclCreationResult(Value):
    error_code: int
    error_message: str | None
    def __init__(self, *, error_code: int = ..., error_message: str | None = ...) -> None: ...

class CreateAclsResponse(ResponseValue):
    throttle_time_ms: int
    results: list[AclCreationResult]
    def __init__(self, *, throttle_time_ms: int = ..., results: list[AclCreationResult] = ...) -> None: ...
