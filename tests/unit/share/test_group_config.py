"""What holds for one share group (KIP-932)."""

from dataclasses import asdict

import pytest

from fencepost.broker.config.broker_config import BrokerConfig, ConfigError, load_config
from fencepost.broker.config.topic_rules import share_group_config, share_state_config
from fencepost.coordinator.share.group_config import ShareGroupConfig
from fencepost.protocol.reset_policy import ResetPolicy
from fencepost.protocol.topics import IsolationLevel

KAFKAS = {
    "group.share.assignment.interval.ms": 1000,
    "group.share.assignors": "simple",
    "group.share.delivery.count.limit": 5,
    "group.share.heartbeat.interval.ms": 5000,
    "group.share.initialize.retry.interval.ms": 30000,
    "group.share.max.assignment.interval.ms": 15000,
    "group.share.max.delivery.count.limit": 10,
    "group.share.max.heartbeat.interval.ms": 15000,
    "group.share.max.partition.max.record.locks": 4000,
    "group.share.max.record.lock.duration.ms": 60000,
    "group.share.max.session.timeout.ms": 60000,
    "group.share.max.share.sessions": 2000,
    "group.share.max.size": 200,
    "group.share.min.assignment.interval.ms": 0,
    "group.share.min.delivery.count.limit": 2,
    "group.share.min.heartbeat.interval.ms": 5000,
    "group.share.min.partition.max.record.locks": 100,
    "group.share.min.record.lock.duration.ms": 15000,
    "group.share.min.session.timeout.ms": 45000,
    "group.share.partition.max.record.locks": 2000,
    "group.share.record.lock.duration.ms": 30000,
    "group.share.session.timeout.ms": 45000,
    "share.coordinator.cold.partition.snapshot.interval.ms": 300000,
    "share.coordinator.snapshot.update.records.per.snapshot": 500,
    "share.coordinator.state.topic.num.partitions": 50,
    "share.coordinator.state.topic.prune.interval.ms": 300000,
    "share.coordinator.state.topic.segment.bytes": 104857600,
}


def test_the_defaults_are_kafkas() -> None:
    """`GroupCoordinatorConfig`, `ShareGroupConfig` and `ShareCoordinatorConfig` of Kafka 4.4."""
    config = BrokerConfig()
    assert {name: config.text(name) for name in KAFKAS} == {name: str(value) for name, value in KAFKAS.items()}
    made = share_group_config(config)
    assert asdict(made) == asdict(ShareGroupConfig(group_share_bounds=made.group_share_bounds))
    assert share_state_config(config).share_coordinator_state_topic_num_partitions == 50


@pytest.mark.parametrize(
    ("assignments", "problem"),
    [
        (["group.share.session.timeout.ms=44999"], "group.share.session.timeout.ms must be greater than or equal to"),
        (["group.share.session.timeout.ms=60001"], "group.share.session.timeout.ms must be less than or equal to"),
        (["group.share.max.session.timeout.ms=1"], "group.share.max.session.timeout.ms must be greater than or equal"),
        (
            ["group.share.min.session.timeout.ms=5000", "group.share.session.timeout.ms=5000"],
            "group.share.heartbeat.interval.ms must be less than group.share.session.timeout.ms",
        ),
        (["group.share.heartbeat.interval.ms=4999"], "group.share.min.heartbeat.interval.ms"),
        (["group.share.assignment.interval.ms=15001"], "group.share.max.assignment.interval.ms"),
        (["group.share.delivery.count.limit=10", "group.share.max.delivery.count.limit=9"], "less than or equal to"),
        (["group.share.record.lock.duration.ms=14999"], "group.share.min.record.lock.duration.ms"),
        (["group.share.partition.max.record.locks=4001"], "group.share.max.partition.max.record.locks"),
        (
            ["group.share.max.share.sessions=199"],
            "group.share.max.share.sessions must be greater than or equal to group.share.max.size",
        ),
        (["group.share.assignors=simple,simple"], "must contain exactly one assignor, but found 2"),
        (["group.share.assignors=range"], "'range' is not allowed, expected a comma-separated list of simple"),
        (["group.share.max.size=1001"], "from 1 to 1000"),
        (["share.coordinator.snapshot.update.records.per.snapshot=501"], "from 0 to 500"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(assignments: list[str], problem: str) -> None:
    """`GroupCoordinatorConfig.verifyShareGroupConfigs`, `ShareGroupConfig.validate` and their `CONFIG_DEF`."""
    with pytest.raises(ConfigError, match=problem):
        load_config(assignments=assignments)


def test_an_assignment_interval_of_run_time_is_kept_within_its_bounds() -> None:
    """`GroupCoordinatorConfig.clampDynamicConfigs`."""
    name = "group.share.assignment.interval.ms"
    altered = BrokerConfig(group_share_max_assignment_interval_ms=2000).with_dynamic({name: "3000"}, {})
    assert share_group_config(altered).group_share_assignment_interval_ms == 2000


def test_a_group_has_the_brokers_settings_or_its_own() -> None:
    """`ShareGroupConfigProvider`, `GroupConfig.defaultShareAutoOffsetReset` and `defaultShareIsolationLevel`."""
    config = share_group_config(BrokerConfig(group_share_delivery_count_limit=7))
    held = config.of_group({})
    assert (held.delivery_count_limit, held.session_timeout_ms, held.record_lock_duration_ms) == (7, 45_000, 30_000)
    assert (held.auto_offset_reset, held.isolation_level) == (ResetPolicy("latest"), IsolationLevel.READ_UNCOMMITTED)
    assert (held.renew_acknowledge_enable, held.dead_letter_topic) == (True, None)
    own = config.of_group(
        {
            "share.delivery.count.limit": "3",
            "share.auto.offset.reset": "by_duration:PT1M",
            "share.isolation.level": "read_committed",
            "share.renew.acknowledge.enable": "false",
            "errors.deadletterqueue.topic.name": "dlq.a",
            "errors.deadletterqueue.copy.record.enable": "true",
            "consumer.session.timeout.ms": "50000",
        }
    )
    assert (own.delivery_count_limit, own.isolation_level) == (3, IsolationLevel.READ_COMMITTED)
    assert own.auto_offset_reset.timestamp(100_000) == 40_000
    assert (own.renew_acknowledge_enable, own.session_timeout_ms) == (False, 45_000)
    assert (own.dead_letter_topic, own.dead_letter_copy_record) == ("dlq.a", True)


def test_a_groups_value_from_other_bounds_is_clamped() -> None:
    """`GroupConfig.evaluate`: the broker was restarted with other bounds since the value was set."""
    config = share_group_config(BrokerConfig(group_share_max_record_lock_duration_ms=40_000))
    assert config.of_group({"share.record.lock.duration.ms": "60000"}).record_lock_duration_ms == 40_000
    assert config.of_group({"share.record.lock.duration.ms": "1000"}).record_lock_duration_ms == 15_000


def test_settings_of_a_group_are_parsed_once() -> None:
    """They are asked for by every request of a member."""
    config = share_group_config(BrokerConfig())
    assert config.of_group({"share.delivery.count.limit": "3"}) is config.of_group({"share.delivery.count.limit": "3"})
