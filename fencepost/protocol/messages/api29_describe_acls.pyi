"""Written by tests/architecture/message_stubs.py from the declarations in api29_describe_acls.py."""

from fencepost.protocol.schema import RequestValue, ResponseValue, Value

class DescribeAclsRequest(RequestValue[DescribeAclsResponse]):
    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int
    def __init__(
        self,
        *,
        resource_type_filter: int = ...,
        resource_name_filter: str | None = ...,
        pattern_type_filter: int = ...,
        principal_filter: str | None = ...,
        host_filter: str | None = ...,
        operation: int = ...,
        permission_type: int = ...,
    ) -> None: ...

class AclDescription(Value):
    principal: str
    host: str
    operation: int
    permission_type: int
    def __init__(
        self, *, principal: str = ..., host: str = ..., operation: int = ..., permission_type: int = ...
    ) -> None: ...

class DescribeAclsResource(Value):
    resource_type: int
    resource_name: str
    pattern_type: int
    acls: list[AclDescription]
    def __init__(
        self,
        *,
        resource_type: int = ...,
        resource_name: str = ...,
        pattern_type: int = ...,
        acls: list[AclDescription] = ...,
    ) -> None: ...

class DescribeAclsResponse(ResponseValue):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    resources: list[DescribeAclsResource]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        resources: list[DescribeAclsResource] = ...,
    ) -> None: ...
