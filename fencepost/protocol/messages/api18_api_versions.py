"""ApiVersions (18): the APIs and versions that the broker serves.

v3 brings the client's name, features and tagged fields (KIP-511, KIP-584); v4 allows a minimum level of 0 for features.
A version the broker does not know is answered in v0, and the header of every answer is v0.
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Array, Bool, Int16, Int32, Int64, Request, Response, Since, String, Struct

ApiVersionsRequest = Request(
    ApiKey.API_VERSIONS,
    "client_software_name" / Since(3, String),
    "client_software_version" / Since(3, String),
)

ApiVersion = Struct(
    "ApiVersion",
    "api_key" / Int16,
    "min_version" / Int16,
    "max_version" / Int16,
)

SupportedFeatureKey = Struct(
    "SupportedFeatureKey",
    "name" / Since(3, String),
    "min_version" / Since(3, Int16),
    "max_version" / Since(3, Int16),
)

FinalizedFeatureKey = Struct(
    "FinalizedFeatureKey",
    "name" / Since(3, String),
    "max_version_level" / Since(3, Int16),
    "min_version_level" / Since(3, Int16),
)

ApiVersionsResponse = Response(
    ApiKey.API_VERSIONS,
    "error_code" / Int16,
    "api_keys" / Array(ApiVersion),
    "throttle_time_ms" / Since(1, Int32),
    "supported_features" / Since(3, Array(SupportedFeatureKey), tag=0),
    "finalized_features_epoch" / Since(3, Int64, default=-1, tag=1),
    "finalized_features" / Since(3, Array(FinalizedFeatureKey), tag=2),
    "zk_migration_ready" / Since(3, Bool, tag=3),
)
