"""What may be set for one group, and how it is told (D2, G4)."""

import pytest

from fencepost.broker.config.broker_config import BrokerConfig
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
    behind = {name: setting.replace(".", "_") for name, setting in GROUP_SETTINGS.items()}
    assert behind == dict(PER_GROUP)


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
        for entry in group_entries({SESSION: "50000"}, BrokerConfig(), Dynamic({}, {GROUP_SETTINGS[INTERVAL]: "9"}))
    }
    assert entries.keys() == GROUP_SETTINGS.keys()
    assert (entries[SESSION].value, entries[SESSION].source) == ("50000", ConfigSource.DYNAMIC_GROUP_CONFIG)
    assert [origin.name for origin in entries[SESSION].synonyms] == [SESSION, GROUP_SETTINGS[SESSION]]
    assert (entries[HEARTBEAT].value, entries[HEARTBEAT].source) == ("5000", ConfigSource.DEFAULT_CONFIG)
    assert (entries[INTERVAL].value, entries[INTERVAL].source) == ("9", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
