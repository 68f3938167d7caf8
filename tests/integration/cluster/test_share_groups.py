"""A broker of a cluster has no share groups yet: to clients it is a Kafka without share.version (KIP-932)."""

from pathlib import Path

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api10_find_coordinator import FindCoordinatorRequest
from fencepost.protocol.messages.api18_api_versions import ApiVersionsRequest
from fencepost.protocol.messages.api57_update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.kit.cluster_processes import ClusterProcesses
from tests.kit.postgres_server import PostgresServer
from tests.kit.wire import Wire


def test_share_groups_are_off_and_can_not_be_switched_on(server: PostgresServer, tmp_path: Path) -> None:
    """`KafkaApis.isShareGroupProtocolEnabled` is what the finalized share.version says."""
    with ClusterProcesses(tmp_path, server) as cluster, Wire(cluster.start(1).connect()) as wire:
        versions = wire.call(18, 4, ApiVersionsRequest(client_software_name="test", client_software_version="1"))
        assert "share.version" not in {one.name for one in versions.supported_features}
        assert "share.version" not in {one.name for one in versions.finalized_features}
        update = FeatureUpdateKey(feature="share.version", max_version_level=1, upgrade_type=1)
        refused = wire.call(57, 2, UpdateFeaturesRequest(feature_updates=[update]))
        assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
        asked = FindCoordinatorRequest(key_type=2, coordinator_keys=["g:__79_Pv6-fj39vX08_Lx8A:0"])
        assert wire.call(10, 6, asked).coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
