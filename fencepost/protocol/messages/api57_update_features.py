"""UpdateFeatures (57): finalize feature levels (KIP-584).

v1 brings the kind of upgrade and validateOnly, v2 drops the per-feature results.
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import (
    Array,
    Bool,
    Field,
    Int8,
    Int16,
    Int32,
    Request,
    Response,
    Since,
    String,
    Struct,
    Until,
)

FeatureUpdateKey = Struct(
    "FeatureUpdateKey",
    "feature" / String,
    "max_version_level" / Int16,
    "allow_downgrade" / Until(0, Bool),
    "upgrade_type" / Since(1, Int8, default=1),
)

UpdateFeaturesRequest = Request(
    ApiKey.UPDATE_FEATURES,
    "timeout_ms" / Field(Int32, default=60000),
    "feature_updates" / Array(FeatureUpdateKey),
    "validate_only" / Since(1, Bool),
)

UpdatableFeatureResult = Struct(
    "UpdatableFeatureResult",
    "feature" / String,
    "error_code" / Int16,
    "error_message" / Field(String, nullable=0),
)

UpdateFeaturesResponse = Response(
    ApiKey.UPDATE_FEATURES,
    "throttle_time_ms" / Int32,
    "error_code" / Int16,
    "error_message" / Field(String, nullable=0),
    "results" / Until(1, Array(UpdatableFeatureResult)),
)
