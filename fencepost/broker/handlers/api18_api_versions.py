"""ApiVersions (18): the API versions that this broker serves, and its features.

v0-4 are served. For a higher version the response is v0 with UNSUPPORTED_VERSION and the served range (KIP-511); the
request's body is not decoded then. v3 brings features (KIP-584), v4 features whose lowest version is 0, which v3
clients must not see.

Clients that send v0 to v2, or whose software name is librdkafka below 1.8, also receive the versions below Kafka 4's
minimum (docs/decisions/0004-served-but-not-advertised.md).
"""

import re

from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import Broker
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api18_api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from fencepost.protocol.registry import API_BY_KEY, Api

SOFTWARE_SINCE = 3
ZERO_MINIMUM_SINCE = 4
_LIBRDKAFKA = re.compile(r"librdkafka[- ](\d+)\.(\d+)")
_LIBRDKAFKA_WITHOUT_NEED = (1, 8)
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.\-]*[a-zA-Z0-9])?")


def handle(node: Broker, request: ApiVersionsRequest | None, context: RequestContext) -> ApiVersionsResponse:
    """List the APIs and the features. `request` is None if its version is not served."""
    if request is None:
        api = API_BY_KEY[ApiKey.API_VERSIONS]
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[_range(api)])
    if context.api_version >= SOFTWARE_SINCE and not (
        _SOFTWARE.fullmatch(request.client_software_name) and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    is_old = context.api_version < SOFTWARE_SINCE or _is_old(
        request.client_software_name, request.client_software_version
    )
    features = node.metadata.features
    supported = [
        SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
        for name, (lowest, highest) in features.supported.items()
        if lowest > 0 or context.api_version >= ZERO_MINIMUM_SINCE
    ]
    finalized = [
        FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
        for name, level in features.finalized.items()
        if level > 0
    ]
    return ApiVersionsResponse(
        api_keys=[_range(api, is_old) for api in node.dispatch.served],
        supported_features=supported,
        finalized_features_epoch=features.epoch,
        finalized_features=finalized,
    )


def _is_old(name: str, version: str) -> bool:
    """Whether this is librdkafka below 1.8, by its own name or by a wrapper's, such as "1.4.2-librdkafka-1.4.2"."""
    found = _LIBRDKAFKA.search(f"{name} {version}")
    return found is not None and (int(found[1]), int(found[2])) < _LIBRDKAFKA_WITHOUT_NEED


def _range(api: Api, is_old: bool = False) -> ApiVersion:
    lowest, highest = api.reported_to_old_clients if is_old else api.advertised
    return ApiVersion(api_key=api.key, min_version=lowest, max_version=highest)
