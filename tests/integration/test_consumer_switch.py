"""The consumer protocol is on by the feature group.version and by a setting, and off by either (G4; KIP-848)."""

from typing import Any

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api18_api_versions import ApiVersionsRequest
from fencepost.protocol.messages.api44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from fencepost.protocol.messages.api57_update_features import FeatureUpdateKey, UpdateFeaturesRequest
from fencepost.protocol.messages.api68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from fencepost.protocol.messages.api69_consumer_group_describe import ConsumerGroupDescribeRequest
from tests.conftest import StartBroker
from tests.kit.wire import Wire

UPGRADE, SAFE_DOWNGRADE = 1, 2


def join(wire: Wire, member_id: str = "a") -> ErrorCode:
    wants: dict[str, Any] = {"subscribed_topic_names": ["t"], "topic_partitions": [], "rebalance_timeout_ms": 10_000}
    reply = wire.call(68, 1, ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, **wants))
    return ErrorCode(reply.error_code)


def describe(wire: Wire) -> ErrorCode:
    return ErrorCode(wire.call(69, 1, ConsumerGroupDescribeRequest(group_ids=["g"])).groups[0].error_code)


def finalize(wire: Wire, level: int, upgrade_type: int) -> ErrorCode:
    update = FeatureUpdateKey(feature="group.version", max_version_level=level, upgrade_type=upgrade_type)
    return ErrorCode(wire.call(57, 2, UpdateFeaturesRequest(feature_updates=[update])).error_code)


def finalized(wire: Wire) -> dict[str, int]:
    asked = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    return {one.name: one.max_version_level for one in wire.call(18, 3, asked).finalized_features}


def interval(wire: Wire, value: str) -> ErrorCode:
    config = AlterableConfig(name="group.consumer.assignment.interval.ms", config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=4, resource_name="", configs=[config])
    answer = wire.call(44, 1, IncrementalAlterConfigsRequest(resources=[resource]))
    return ErrorCode(answer.responses[0].error_code)


def test_the_assignment_interval_can_be_altered_at_run_time_g4(start_broker: StartBroker) -> None:
    """As in Kafka it is the one setting of consumer groups that can (KIP-1263)."""
    with Wire(start_broker().connect()) as wire:
        assert join(wire) is ErrorCode.NONE
        assert interval(wire, "15000") is ErrorCode.NONE
        assert join(wire, "b") is ErrorCode.NONE
        [group] = wire.call(69, 1, ConsumerGroupDescribeRequest(group_ids=["g"])).groups
        assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Assigning", 3, 2)
        assert interval(wire, "0") is ErrorCode.NONE
        assert join(wire, "b") is ErrorCode.NONE
        [group] = wire.call(69, 1, ConsumerGroupDescribeRequest(group_ids=["g"])).groups
        assert (group.group_epoch, group.assignment_epoch) == (3, 3)


def test_group_version_0_switches_the_protocol_off_and_on_again_g4(start_broker: StartBroker) -> None:
    with Wire(start_broker().connect()) as wire:
        assert finalized(wire)["group.version"] == 1
        assert join(wire) is ErrorCode.NONE
        assert finalize(wire, 0, SAFE_DOWNGRADE) is ErrorCode.NONE
        assert "group.version" not in finalized(wire)
        assert join(wire) is describe(wire) is ErrorCode.UNSUPPORTED_VERSION
        assert finalize(wire, 1, UPGRADE) is ErrorCode.NONE
        assert join(wire) is describe(wire) is ErrorCode.NONE
        assert finalize(wire, 2, UPGRADE) is ErrorCode.INVALID_UPDATE_VERSION


def test_without_consumer_among_the_protocols_it_is_off_g4(start_broker: StartBroker) -> None:
    with Wire(start_broker(settings={"group.coordinator.rebalance.protocols": "classic"}).connect()) as wire:
        assert join(wire) is describe(wire) is ErrorCode.UNSUPPORTED_VERSION
