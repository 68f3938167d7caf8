"""Written by tests/architecture/message_stubs.py from the declarations in api31_delete_acls.py."""

from fencepost.protocol.schema import RequestValue, ResponseValue, Value

class DeleteAclsFilter(Value):
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

class DeleteAclsRequest(RequestValue[DeleteAclsResponse]):
    filters: list[DeleteAclsFilter]
    def __init__(self, *, filters: list[DeleteAclsFilter] = ...) -> None: ...

class DeleteAclsMatchingAcl(Value):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int
    def __init__(
        self,
        *,
        error_code: int = ...,
        error_message: str | None = ...,
        resource_type: int = ...,
        resource_name: str = ...,
        pattern_type: int = ...,
        principal: str = ...,
        host: str = ...,
        operation: int = ...,
        permission_type: int = ...,
    ) -> None: ...

class DeleteAclsFilterResult(Value):
    error_code: int
    error_message: str | None
    matching_acls: list[DeleteAclsMatchingAcl]
    def __init__(
        self,
        *,
        error_code: int = ...,
        error_message: str | None = ...,
        matching_acls: list[DeleteAclsMatchingAcl] = ...,
    ) -> None: ...

class DeleteAclsResponse(ResponseValue):
    throttle_time_ms: int
    filter_results: list[DeleteAclsFilterResult]
    def __init__(self, *, throttle_time_ms: int = ..., filter_results: list[DeleteAclsFilterResult] = ...) -> None: ...
