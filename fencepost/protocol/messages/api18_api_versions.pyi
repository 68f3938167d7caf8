"""Written by tests/architecture/message_stubs.py from the declarations in api18_api_versions.py."""

from fencepost.protocol.schema import RequestValue, ResponseValue, Value

class ApiVersionsRequest(RequestValue[ApiVersionsResponse]):
    client_software_name: str
    client_software_version: str
    def __init__(self, *, client_software_name: str = ..., client_software_version: str = ...) -> None: ...

class ApiVersion(Value):
    api_key: int
    min_version: int
    max_version: int
    def __init__(self, *, api_key: int = ..., min_version: int = ..., max_version: int = ...) -> None: ...

class SupportedFeatureKey(Value):
    name: str
    min_version: int
    max_version: int
    def __init__(self, *, name: str = ..., min_version: int = ..., max_version: int = ...) -> None: ...

class FinalizedFeatureKey(Value):
    name: str
    max_version_level: int
    min_version_level: int
    def __init__(self, *, name: str = ..., max_version_level: int = ..., min_version_level: int = ...) -> None: ...

class ApiVersionsResponse(ResponseValue):
    error_code: int
    api_keys: list[ApiVersion]
    throttle_time_ms: int
    supported_features: list[SupportedFeatureKey]
    finalized_features_epoch: int
    finalized_features: list[FinalizedFeatureKey]
    zk_migration_ready: bool
    def __init__(
        self,
        *,
        error_code: int = ...,
        api_keys: list[ApiVersion] = ...,
        throttle_time_ms: int = ...,
        supported_features: list[SupportedFeatureKey] = ...,
        finalized_features_epoch: int = ...,
        finalized_features: list[FinalizedFeatureKey] = ...,
        zk_migration_ready: bool = ...,
    ) -> None: ...
