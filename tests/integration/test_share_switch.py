"""Share groups are on by the feature share.version alone, and their coordinator is found by brokers (KIP-932)."""

from fencepost.broker.security.rights import ERROR_OF
from fencepost.protocol.admin_enums import AclResourceType
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api10_find_coordinator import FindCoordinatorRequest
from fencepost.protocol.messages.api18_api_versions import ApiVersionsRequest
from fencepost.protocol.messages.api57_update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.conftest import StartBroker
from tests.kit.wire import Wire

UPGRADE, SAFE_DOWNGRADE = 1, 2
SHARE = 2
KEY = "g:__79_Pv6-fj39vX08_Lx8A:0"


def finalize(wire: Wire, level: int, upgrade_type: int = UPGRADE) -> ErrorCode:
    update = FeatureUpdateKey(feature="share.version", max_version_level=level, upgrade_type=upgrade_type)
    return ErrorCode(wire.call(57, 2, UpdateFeaturesRequest(feature_updates=[update])).error_code)


def finalized(wire: Wire) -> dict[str, int]:
    asked = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    return {one.name: one.max_version_level for one in wire.call(18, 4, asked).finalized_features}


def found(wire: Wire, key: str, version: int = 6) -> tuple[ErrorCode, int]:
    answer = wire.call(10, version, FindCoordinatorRequest(key_type=SHARE, coordinator_keys=[key]))
    return ErrorCode(answer.coordinators[0].error_code), answer.coordinators[0].node_id


def test_share_version_is_finalized_at_2_and_can_be_switched_off(start_broker: StartBroker) -> None:
    """G9: `ShareVersion.LATEST_PRODUCTION` of Kafka 4.4."""
    with Wire(start_broker(settings={"group.coordinator.rebalance.protocols": "classic"}).connect()) as wire:
        assert finalized(wire)["share.version"] == 2
        assert finalize(wire, 0, SAFE_DOWNGRADE) is ErrorCode.NONE
        assert "share.version" not in finalized(wire)
        assert finalize(wire, 1) is ErrorCode.NONE
        assert finalize(wire, 2) is ErrorCode.NONE
        assert finalize(wire, 3) is ErrorCode.INVALID_UPDATE_VERSION


def test_a_data_directory_without_the_feature_keeps_it_off(start_broker: StartBroker) -> None:
    """KIP-584: only UpdateFeatures finalizes a feature of an existing cluster."""
    broker = start_broker(files=True)
    with Wire(broker.connect()) as wire:
        assert finalize(wire, 0, SAFE_DOWNGRADE) is ErrorCode.NONE
    broker.stop()
    broker.start()
    with Wire(broker.connect()) as wire:
        assert "share.version" not in finalized(wire)


def test_the_coordinator_of_a_share_partition_is_found_from_version_6_on(start_broker: StartBroker) -> None:
    """G9, `KafkaApis.getCoordinator`: INVALID_REQUEST before, and for other keys than GROUP:TOPIC_ID:PARTITION."""
    with Wire(start_broker().connect()) as wire:
        assert found(wire, KEY, version=5) == (ErrorCode.INVALID_REQUEST, -1)
        assert found(wire, "g") == (ErrorCode.INVALID_REQUEST, -1)
        assert found(wire, KEY) == (ErrorCode.NONE, 1)
        assert finalize(wire, 0, SAFE_DOWNGRADE) is ErrorCode.NONE
        assert found(wire, KEY) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)


def test_only_brokers_may_look_for_it(start_broker: StartBroker) -> None:
    """`KafkaApis.getCoordinator` authorizes CLUSTER_ACTION on the cluster, before it looks at the key."""
    with Wire(start_broker(settings={"authorizer.class.name": "standard"}).connect()) as wire:
        refused = (ERROR_OF[AclResourceType.CLUSTER], -1)
        assert found(wire, "g") == found(wire, KEY) == refused
        assert found(wire, KEY, version=5) == (ErrorCode.INVALID_REQUEST, -1)
