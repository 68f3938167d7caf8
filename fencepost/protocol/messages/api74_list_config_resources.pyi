"""Written by tests/architecture/message_stubs.py from the declarations in api74_list_config_resources.py."""

from fencepost.protocol.schema import RequestValue, ResponseValue, Value

class ListConfigResourcesRequest(RequestValue[ListConfigResourcesResponse]):
    resource_types: list[int]
    def __init__(self, *, resource_types: list[int] = ...) -> None: ...

class ConfigResource(Value):
    resource_name: str
    resource_type: int
    def __init__(self, *, resource_name: str = ..., resource_type: int = ...) -> None: ...

class ListConfigResourcesResponse(ResponseValue):
    throttle_time_ms: int
    error_code: int
    config_resources: list[ConfigResource]
    def __init__(
        self, *, throttle_time_ms: int = ..., error_code: int = ..., config_resources: list[ConfigResource] = ...
    ) -> None: ...
