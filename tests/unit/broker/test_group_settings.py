"""What may be set for one group, and how it is told (D2, G4)."""

import pytest

from fencepost.broker.config.broker_config import SETTINGS, BrokerConfig
from fencepost.broker.config.fields import format_value
from fencepost.broker.config.group_settings import GROUP_SETTINGS, group_entries, group_problem
from fencepost.broker.config.topic_config import Dynamic
from fencepost.coordinator.group.consumer_service import PER_GROUP
from fencepost.protocol.admin_enums import ConfigSource

SESSION, HEARTBEAT, INTERVAL = (
    "consumer.session.timeout.ms",
    "consumer.heartbeat.interval.ms",
    "consumer.assignment.interval.ms",
)


def test_each_stands_over_a_setting_of_the_broker_g4() -> None:
    behind = {
        name: str(one.behind).replace(".", "_") for name, one in GROUP_SETTINGS.items() if name.startswith("consumer.")
    }
    assert behind == dict(PER_GROUP)


def test_they_are_those_of_kafka_4_4() -> None:
    """`GroupConfig.CONFIG_DEF` without streams groups and without where assignors run; names and defaults."""
    assert {name: format_value(one.setting.default) for name, one in GROUP_SETTINGS.items()} == {
        "consumer.assignment.interval.ms": "0",  # Kafka: 1000
        "consumer.heartbeat.interval.ms": "5000",
        "consumer.session.timeout.ms": "45000",
        "errors.deadletterqueue.copy.record.enable": "false",
        "errors.deadletterqueue.topic.name": "",
        "share.assignment.interval.ms": "1000",
        "share.auto.offset.reset": "latest",
        "share.delivery.count.limit": "5",
        "share.heartbeat.interval.ms": "5000",
        "share.isolation.level": "read_uncommitted",
        "share.partition.max.record.locks": "2000",
        "share.record.lock.duration.ms": "30000",
        "share.renew.acknowledge.enable": "true",
        "share.session.timeout.ms": "45000",
    }


@pytest.mark.parametrize(
    ("name", "text", "part"),
    [
        ("share.session.timeout.ms", "60000", None),
        ("share.session.timeout.ms", "44999", "greater than or equal to group.share.min.session.timeout.ms"),
        ("share.heartbeat.interval.ms", "15001", "less than or equal to group.share.max.heartbeat.interval.ms"),
        ("share.assignment.interval.ms", "15001", "less than or equal to group.share.max.assignment.interval.ms"),
        ("share.delivery.count.limit", "11", "less than or equal to group.share.max.delivery.count.limit"),
        ("share.delivery.count.limit", "1", "1 is out of range, expected int >= 2"),
        ("share.record.lock.duration.ms", "14999", "equal to group.share.min.record.lock.duration.ms"),
        ("share.record.lock.duration.ms", "999", "out of range, expected int >= 1000"),
        ("share.partition.max.record.locks", "4001", "equal to group.share.max.partition.max.record.locks"),
        ("share.auto.offset.reset", "earliest", None),
        ("share.auto.offset.reset", "by_duration:P3DT3H", None),
        ("share.auto.offset.reset", "by_duration:-PT1H", "must be earliest, latest"),
        ("share.auto.offset.reset", "none", "must be earliest, latest"),
        ("share.auto.offset.reset", "LATEST", "must be earliest, latest"),
        ("share.auto.offset.reset", "first", "must be earliest, latest or by_duration: and an ISO"),
        ("group.share.record.lock.duration.ms", "1", "; the nearest known one is share.record.lock.duration.ms"),
        ("share.isolation.level", "read_committed", None),
        ("share.isolation.level", "serializable", "expected one of read_committed, read_uncommitted"),
        ("share.renew.acknowledge.enable", "perhaps", "boolean"),
        ("errors.deadletterqueue.topic.name", "dlq.a", None),
        ("errors.deadletterqueue.topic.name", "__a", "DLQ topic name must not start with '__'"),
        ("streams.session.timeout.ms", "45000", "Unknown group config name: streams.session.timeout.ms"),
    ],
)
def test_what_a_share_group_may_set(name: str, text: str, part: str | None) -> None:
    """`GroupConfig.validate`, `ShareGroupAutoOffsetResetStrategy.Validator` (KIP-932, KIP-1191)."""
    told = group_problem({name: text}, BrokerConfig())
    assert (told is None) if part is None else (told is not None and part in told)


def test_a_group_may_go_beyond_what_the_broker_may_choose_for_all() -> None:
    """`GroupConfig` bounds a group by `group.share.max.*`, not by the highest value of `group.share.*`."""
    broker = BrokerConfig(group_share_max_delivery_count_limit=25)
    assert group_problem({"share.delivery.count.limit": "25"}, broker) is None
    assert SETTINGS["group.share.delivery.count.limit"].high == 10


def test_a_share_groups_heartbeat_must_fit_into_its_session() -> None:
    """`GroupConfig.validateSessionExceedsHeartbeat`."""
    broker = BrokerConfig(group_share_min_session_timeout_ms=1)
    told = group_problem({"share.session.timeout.ms": "5000"}, broker)
    assert told == "share.session.timeout.ms must be greater than share.heartbeat.interval.ms"


@pytest.mark.parametrize(
    ("configs", "problem"),
    [
        ({SESSION: "50000", HEARTBEAT: "6000", INTERVAL: "7"}, None),
        ({"zoo": "1"}, "Unknown group config name: zoo"),
        (
            {SESSION: "30000"},
            f"{SESSION} must be greater than or equal to group.consumer.min.session.timeout.ms: 30000 is below 45000."
            " Set 45000 or more, or restart the broker with a lower group.consumer.min.session.timeout.ms",
        ),
        (
            {SESSION: "60001"},
            f"{SESSION} must be less than or equal to group.consumer.max.session.timeout.ms: 60001 is above 60000."
            " Set 60000 or less, or restart the broker with a higher group.consumer.max.session.timeout.ms",
        ),
        (
            {HEARTBEAT: "15001"},
            f"{HEARTBEAT} must be less than or equal to group.consumer.max.heartbeat.interval.ms: 15001 is above 15000."
            " Set 15000 or less, or restart the broker with a higher group.consumer.max.heartbeat.interval.ms",
        ),
        (
            {INTERVAL: "15001"},
            f"{INTERVAL} must be less than or equal to group.consumer.max.assignment.interval.ms: 15001 is above 15000."
            " Set 15000 or less, or restart the broker with a higher group.consumer.max.assignment.interval.ms",
        ),
    ],
)
def test_they_stay_within_the_brokers_bounds_d2(configs: dict[str, str], problem: str | None) -> None:
    assert group_problem(configs, BrokerConfig()) == problem


def test_a_heartbeat_must_fit_into_the_session_d2() -> None:
    broker = BrokerConfig(group_consumer_min_session_timeout_ms=1, group_consumer_min_heartbeat_interval_ms=1)
    told = group_problem({SESSION: "5000"}, broker)
    assert told == f"{SESSION} must be greater than {HEARTBEAT}"
    assert group_problem({SESSION: "5000", HEARTBEAT: "4999"}, broker) is None


def test_what_is_no_number_is_named_d2() -> None:
    told = group_problem({HEARTBEAT: "x"}, BrokerConfig())
    assert told is not None
    assert told.startswith(f"Invalid value x for configuration {HEARTBEAT}: ")


def test_entries_tell_where_a_value_comes_from_d2() -> None:
    entries = {
        entry.name: entry
        for entry in group_entries(
            {SESSION: "50000"}, BrokerConfig(), Dynamic({}, {str(GROUP_SETTINGS[INTERVAL].behind): "9"})
        )
    }
    assert entries.keys() == GROUP_SETTINGS.keys()
    assert (entries[SESSION].value, entries[SESSION].source) == ("50000", ConfigSource.DYNAMIC_GROUP_CONFIG)
    assert [origin.name for origin in entries[SESSION].synonyms] == [SESSION, GROUP_SETTINGS[SESSION].behind]
    assert (entries[HEARTBEAT].value, entries[HEARTBEAT].source) == ("5000", ConfigSource.DEFAULT_CONFIG)
    assert (entries[INTERVAL].value, entries[INTERVAL].source) == ("9", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
    reset = entries["share.auto.offset.reset"]
    assert (reset.value, reset.source) == ("latest", ConfigSource.DEFAULT_CONFIG)
    assert [origin.name for origin in reset.synonyms] == ["share.auto.offset.reset"]  # ConfigHelper: its own default
