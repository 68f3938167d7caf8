"""Written by tests/architecture/message_stubs.py from the declarations in api44_incremental_alter_configs.py."""

from fencepost.protocol.schema import RequestValue, ResponseValue, Value

class AlterableConfig(Value):
    name: str
    config_operation: int
    value: str | None
    def __init__(self, *, name: str = ..., config_operation: int = ..., value: str | None = ...) -> None: ...

class AlterConfigsResource(Value):
    resource_type: int
    resource_name: str
    configs: list[AlterableConfig]
    def __init__(
        self, *, resource_type: int = ..., resource_name: str = ..., configs: list[AlterableConfig] = ...
    ) -> None: ...

class IncrementalAlterConfigsRequest(RequestValue[IncrementalAlterConfigsResponse]):
    resources: list[AlterConfigsResource]
    validate_only: bool
    def __init__(self, *, resources: list[AlterConfigsResource] = ..., validate_only: bool = ...) -> None: ...

class AlterConfigsResourceResponse(Value):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    def __init__(
        self,
        *,
        error_code: int = ...,
        error_message: str | None = ...,
        resource_type: int = ...,
        resource_name: str = ...,
    ) -> None: ...

class IncrementalAlterConfigsResponse(ResponseValue):
    throttle_time_ms: int
    responses: list[AlterConfigsResourceResponse]
    def __init__(self, *, throttle_time_ms: int = ..., responses: list[AlterConfigsResourceResponse] = ...) -> None: ...
