"""UpdateFeatures (57): finalize features at other levels, all or none (KIP-584).

v1 has an upgrade type where v0 has allowDowngrade, and validateOnly; v2 has one error for all and no list of results.
"""

from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import Broker
from fencepost.coordinator.metadata.commands import FeatureUpdate
from fencepost.protocol.admin_enums import UpgradeType
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api57_update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

UPGRADE_TYPE_SINCE = 1
NO_RESULTS_SINCE = 2


async def handle(node: Broker, request: UpdateFeaturesRequest, context: RequestContext) -> UpdateFeaturesResponse:
    updates = [
        FeatureUpdate(entry.feature, entry.max_version_level, _upgrade_type(entry, context.api_version))
        for entry in request.feature_updates
    ]
    code, message = await node.metadata.update_features(updates, request.validate_only)
    if code is not ErrorCode.NONE:
        why = f"The update failed for all features since the following feature had an error: {message}"
        return UpdateFeaturesResponse(error_code=code, error_message=why)
    results = []
    if context.api_version < NO_RESULTS_SINCE:
        results = [UpdatableFeatureResult(feature=update.name, error_message=None) for update in updates]
    return UpdateFeaturesResponse(error_message=None, results=results)


def _upgrade_type(entry: FeatureUpdateKey, version: int) -> int:
    if version >= UPGRADE_TYPE_SINCE:
        return entry.upgrade_type
    return UpgradeType.SAFE_DOWNGRADE if entry.allow_downgrade else UpgradeType.UPGRADE
