"""ApiVersions (18): the APIs and versions that the broker serves.

v3 brings the client's name, features and tagged fields (KIP-511, KIP-584); v4 allows a minimum level of 0 for features.
A version the broker does not know is answered in v0, and the header of every answer is v0.
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Bool, Int16, Int32, Int64, RequestValue, ResponseValue, String, Value, since


class ApiVersionsRequest(RequestValue["ApiVersionsResponse"], api=ApiKey.API_VERSIONS):
    client_software_name: String = since(3)
    client_software_version: String = since(3)


class ApiVersion(Value):
    api_key: Int16 = 0
    min_version: Int16 = 0
    max_version: Int16 = 0


class SupportedFeatureKey(Value):
    name: String = since(3)
    min_version: Int16 = since(3)
    max_version: Int16 = since(3)


class FinalizedFeatureKey(Value):
    name: String = since(3)
    max_version_level: Int16 = since(3)
    min_version_level: Int16 = since(3)


class ApiVersionsResponse(ResponseValue, api=ApiKey.API_VERSIONS):
    error_code: Int16 = 0
    api_keys: list[ApiVersion] = []
    throttle_time_ms: Int32 = since(1)
    supported_features: list[SupportedFeatureKey] = since(3, tag=0)
    finalized_features_epoch: Int64 = since(3, default=-1, tag=1)
    finalized_features: list[FinalizedFeatureKey] = since(3, tag=2)
    zk_migration_ready: Bool = since(3, tag=3)
