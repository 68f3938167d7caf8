"""Written by tests/architecture/message_stubs.py from the declarations in api57_update_features.py."""

from fencepost.protocol.schema import RequestValue, ResponseValue, Value

class FeatureUpdateKey(Value):
    feature: str
    max_version_level: int
    allow_downgrade: bool
    upgrade_type: int
    def __init__(
        self, *, feature: str = ..., max_version_level: int = ..., allow_downgrade: bool = ..., upgrade_type: int = ...
    ) -> None: ...

class UpdateFeaturesRequest(RequestValue[UpdateFeaturesResponse]):
    timeout_ms: int
    feature_updates: list[FeatureUpdateKey]
    validate_only: bool
    def __init__(
        self, *, timeout_ms: int = ..., feature_updates: list[FeatureUpdateKey] = ..., validate_only: bool = ...
    ) -> None: ...

class UpdatableFeatureResult(Value):
    feature: str
    error_code: int
    error_message: str | None
    def __init__(self, *, feature: str = ..., error_code: int = ..., error_message: str | None = ...) -> None: ...

class UpdateFeaturesResponse(ResponseValue):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    results: list[UpdatableFeatureResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        results: list[UpdatableFeatureResult] = ...,
    ) -> None: ...
