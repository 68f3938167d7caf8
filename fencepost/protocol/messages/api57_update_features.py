"""UpdateFeatures (57): finalize feature levels (KIP-584).

v1 brings the kind of upgrade and validateOnly, v2 drops the per-feature results.
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Bool, Int8, Int16, Int32, RequestValue, ResponseValue, String, Value, since, until


class FeatureUpdateKey(Value):
    feature: String = ""
    max_version_level: Int16 = 0
    allow_downgrade: Bool = until(0)
    upgrade_type: Int8 = since(1, default=1)


class UpdateFeaturesRequest(RequestValue["UpdateFeaturesResponse"], api=ApiKey.UPDATE_FEATURES):
    timeout_ms: Int32 = 60000
    feature_updates: list[FeatureUpdateKey] = []
    validate_only: Bool = since(1)


class UpdatableFeatureResult(Value):
    feature: String = ""
    error_code: Int16 = 0
    error_message: String | None = ""


class UpdateFeaturesResponse(ResponseValue, api=ApiKey.UPDATE_FEATURES):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
    results: list[UpdatableFeatureResult] = until(1)
