"""Written by tests/architecture/message_stubs.py from the declarations in api32_describe_configs.py."""

from fencepost.protocol.schema import RequestValue, ResponseValue, Value

class DescribeConfigsResource(Value):
    resource_type: int
    resource_name: str
    configuration_keys: list[str] | None
    def __init__(
        self, *, resource_type: int = ..., resource_name: str = ..., configuration_keys: list[str] | None = ...
    ) -> None: ...

class DescribeConfigsRequest(RequestValue[DescribeConfigsResponse]):
    resources: list[DescribeConfigsResource]
    include_synonyms: bool
    include_documentation: bool
    def __init__(
        self,
        *,
        resources: list[DescribeConfigsResource] = ...,
        include_synonyms: bool = ...,
        include_documentation: bool = ...,
    ) -> None: ...

class DescribeConfigsSynonym(Value):
    name: str
    value: str | None
    source: int
    def __init__(self, *, name: str = ..., value: str | None = ..., source: int = ...) -> None: ...

class DescribeConfigsResourceResult(Value):
    name: str
    value: str | None
    read_only: bool
    is_default: bool
    config_source: int
    is_sensitive: bool
    synonyms: list[DescribeConfigsSynonym]
    config_type: int
    documentation: str | None
    def __init__(
        self,
        *,
        name: str = ...,
        value: str | None = ...,
        read_only: bool = ...,
        is_default: bool = ...,
        config_source: int = ...,
        is_sensitive: bool = ...,
        synonyms: list[DescribeConfigsSynonym] = ...,
        config_type: int = ...,
        documentation: str | None = ...,
    ) -> None: ...

class DescribeConfigsResult(Value):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    configs: list[DescribeConfigsResourceResult]
    def __init__(
        self,
        *,
        error_code: int = ...,
        error_message: str | None = ...,
        resource_type: int = ...,
        resource_name: str = ...,
        configs: list[DescribeConfigsResourceResult] = ...,
    ) -> None: ...

class DescribeConfigsResponse(ResponseValue):
    throttle_time_ms: int
    results: list[DescribeConfigsResult]
    def __init__(self, *, throttle_time_ms: int = ..., results: list[DescribeConfigsResult] = ...) -> None: ...
