"""Topic configurations: bounds, messages, the chain of sources behind a value, and what the log gets of them."""

import pytest

from fencepost.broker.config.broker_config import load_config
from fencepost.broker.config.entries import broker_entries, default_broker_entries, topic_entries
from fencepost.broker.config.topic_config import NO_DYNAMIC, Dynamic, Origin, chain, effective, topic_problem
from fencepost.broker.config.topic_rules import TopicRules, cluster_facts, log_config, metadata_log_config, txn_config
from fencepost.broker.config.topic_settings import TOPIC_SETTINGS
from fencepost.coordinator.metadata.image import EMPTY_IMAGE
from fencepost.protocol.admin_enums import ConfigResourceType, ConfigSource

CONFIG = load_config()


def test_every_default_fits_its_own_declaration() -> None:
    for name, entry in TOPIC_SETTINGS.items():
        assert entry.setting.parse(entry.setting.default) == entry.setting.default, name
    assert topic_problem({name: value.value or "" for name in TOPIC_SETTINGS
                          if (value := chain(name, {}, CONFIG)[0]).value is not None}) is None  # fmt: skip


def test_a_topic_that_says_nothing_gets_the_brokers_defaults_in_its_own_unit() -> None:
    """Hours become milliseconds; the defaults of both tables say the same."""
    values = effective({}, CONFIG)
    for name, entry in TOPIC_SETTINGS.items():
        assert values[name] == entry.setting.default, name


@pytest.mark.parametrize(
    ("configs", "part"),
    [
        ({"no.such": "1"}, "Unknown topic config name: no.such"),
        ({"retention.mss": "1"}, "nearest known one is retention.ms"),
        ({"retention.ms": "soon"}, "Invalid value soon for configuration retention.ms"),
        ({"retention.ms": "-2"}, "out of range"),
        ({"cleanup.policy": "compact,vanish"}, "'vanish' is not allowed"),
        ({"segment.bytes": "1048575"}, "out of range"),  # KIP-1030
        ({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}, "must not be larger"),
        ({"remote.storage.enable": "true"}, "no tiered storage"),
        ({"leader.replication.throttled.replicas": "0:1,x"}, "'x' is not * or PARTITION:BROKER"),
        ({"preallocate": "1"}, "boolean"),
    ],
)
def test_what_is_not_right_is_said(configs: dict[str, str], part: str) -> None:
    assert part in (topic_problem(configs) or "")


def test_what_is_right_is_taken() -> None:
    assert (
        topic_problem({"cleanup.policy": "compact, delete", "retention.ms": "-1", "segment.bytes": "1048576"}) is None
    )
    assert topic_problem({"follower.replication.throttled.replicas": "*"}) is None


def test_the_chain_goes_from_the_topic_to_the_default() -> None:
    """KIP-226's order: topic, this broker, all brokers, started with, default; in each, ms comes before minutes."""
    broker = load_config(assignments=["log.retention.minutes=3", "log.retention.hours=4"])
    dynamic = Dynamic({"log.retention.ms": "2"}, {"log.retention.ms": "9"})
    assert chain("retention.ms", {"retention.ms": "1"}, broker, dynamic) == [
        Origin("retention.ms", "1", ConfigSource.DYNAMIC_TOPIC_CONFIG),
        Origin("log.retention.ms", "2", ConfigSource.DYNAMIC_BROKER_CONFIG),
        Origin("log.retention.ms", "9", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        Origin("log.retention.minutes", "180000", ConfigSource.STATIC_BROKER_CONFIG),
        Origin("log.retention.hours", "14400000", ConfigSource.STATIC_BROKER_CONFIG),
        Origin("log.retention.hours", "604800000", ConfigSource.DEFAULT_CONFIG),
    ]


def test_minus_one_stays_minus_one_in_every_unit() -> None:
    broker = load_config(assignments=["log.retention.hours=-1"])
    assert chain("retention.ms", {}, broker)[0].value == "-1"


def test_the_log_gets_what_holds() -> None:
    config = log_config(
        load_config(assignments=["log.roll.hours=2", "message.max.bytes=77"]),
        {"cleanup.policy": "compact", "internal.segment.bytes": "1000", "retention.ms": "5"},
        Dynamic({}, {"producer.id.expiration.ms": "6", "log.retention.bytes": "8"}),
    )
    assert config.cleanup_policy == {"compact"}
    assert (config.segment_bytes, config.segment_ms, config.max_message_bytes) == (1000, 7_200_000, 77)
    assert (config.retention_ms, config.retention_bytes, config.producer_id_expiration_ms) == (5, 8, 6)


def test_the_metadata_log_is_never_cut() -> None:
    config = metadata_log_config(load_config())
    assert not config.deletes
    assert not config.compacted


def test_topics_that_are_set_alike_share_one_log_config() -> None:
    rules = TopicRules(CONFIG)
    assert rules.log_config(EMPTY_IMAGE, "a") is rules.log_config(EMPTY_IMAGE, "b")


def test_append_on_nothing_starts_from_what_holds() -> None:
    rules = TopicRules(load_config(assignments=["log.cleanup.policy=compact"]))
    assert rules.default_text(EMPTY_IMAGE, ConfigResourceType.TOPIC, "cleanup.policy") == "compact"
    assert rules.is_list(ConfigResourceType.TOPIC, "cleanup.policy")
    assert not rules.is_list(ConfigResourceType.TOPIC, "retention.ms")
    assert not rules.is_list(ConfigResourceType.BROKER, "no.such")


def test_entries_of_a_topic_hide_what_is_internal_until_it_is_set() -> None:
    names = [entry.name for entry in topic_entries({}, CONFIG, NO_DYNAMIC)]
    assert "internal.segment.bytes" not in names
    assert names == sorted(names)
    shown = topic_entries({"internal.segment.bytes": "99"}, CONFIG, NO_DYNAMIC)
    assert "99" in [entry.value for entry in shown if entry.name == "internal.segment.bytes"]


def test_entries_of_a_broker_know_their_source_and_whether_they_can_change() -> None:
    broker = load_config(assignments=["num.partitions=4"])
    entries = {entry.name: entry for entry in broker_entries(broker, Dynamic({"message.max.bytes": "9"}, {}))}
    assert entries["num.partitions"].value == "4"
    assert entries["num.partitions"].source is ConfigSource.STATIC_BROKER_CONFIG
    assert entries["num.partitions"].read_only
    assert entries["message.max.bytes"].value == "9"
    assert [origin.source for origin in entries["message.max.bytes"].synonyms] == [
        ConfigSource.DYNAMIC_BROKER_CONFIG,
        ConfigSource.DEFAULT_CONFIG,
    ]
    assert entries["broker.id"].value == entries["node.id"].value == "1"
    assert entries["log.retention.ms"].value is None
    assert entries["log.retention.ms"].source is ConfigSource.DEFAULT_CONFIG


def test_the_cluster_default_lists_only_what_was_altered() -> None:
    assert default_broker_entries(NO_DYNAMIC) == []
    [entry] = default_broker_entries(Dynamic({}, {"log.retention.ms": "5"}))
    assert (entry.name, entry.value, entry.source) == (
        "log.retention.ms", "5", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
    )  # fmt: skip


def test_the_coordinators_get_their_share() -> None:
    config = load_config(assignments=["transaction.max.timeout.ms=7", "num.partitions=3", "delete.topic.enable=false"])
    assert txn_config(config).transaction_max_timeout_ms == 7
    facts = cluster_facts(config, "c")
    assert (facts.default_partitions, facts.delete_topics, facts.cluster_id) == (3, False, "c")
