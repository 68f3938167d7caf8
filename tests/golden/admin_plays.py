"""The plays of an administrator: topics and their settings. What is about the cluster is in admin_cluster_plays.py."""

from collections.abc import Callable, Sequence
from typing import Any

from tests.golden.admin_cluster_plays import CLUSTER_PLAYS
from tests.golden.admin_scenarios import (
    APPEND,
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE,
    DELETE_TOPICS,
    GROUP,
    INCREMENTAL,
    METADATA,
    SET,
    SUBTRACT,
    TOPIC,
    Desk,
    ordered,
)
from tests.golden.group_scenarios import Stage, message

BAD_SETTINGS: dict[str, Sequence[str]] = {
    "cleanup_policy": ("none", "compact,", "", "delete,delete"),
    "compression_type": ("rar",),
    "compression_gzip_level": ("0", "10"),
    "compression_zstd_level": ("23",),
    "compression_lz4_level": ("0",),
    "delete_retention_ms": ("-1",),
    "flush_messages": ("0",),
    "index_interval_bytes": ("-1",),
    "max_compaction_lag_ms": ("0",),
    "max_message_bytes": ("-1", "ten", "2147483648"),
    "message_timestamp_type": ("BrokerTime",),
    "min_cleanable_dirty_ratio": ("1.5", "-0.1", "x"),
    "min_insync_replicas": ("0",),
    "preallocate": ("yes",),
    "retention_ms": ("-2", "soon"),
    "segment_bytes": ("13",),
    "segment_ms": ("0",),
    "segment_index_bytes": ("3",),
    "leader_replication_throttled_replicas": ("0-1",),
    "no_such_setting": ("1",),
}


def creation(stage: Stage) -> None:
    """CreateTopics in every version Kafka has, with defaults, settings, by hand, and only tried (D1)."""
    desk = Desk(stage)
    for version in range(2, 8):
        name = desk.named(f"made-{version}")
        one = desk.new(name, 2, retention_ms="1000", cleanup_policy="compact,delete")
        desk.create("tried only", one, version=version, validate_only=True)
        desk.create("made", one, version=version)
        desk.create("again", one, version=version)
        desk.create("tried again", one, version=version, validate_only=True)
        by_hand = desk.new(desk.named(f"hand-{version}"), -1, -1, by_hand=[(0, [1]), (1, [1])])
        desk.create("by hand", by_hand, version=version)
        if version >= 4:
            desk.create("by default", desk.new(desk.named(f"default-{version}"), -1, -1), version=version)
    desk.create("nothing")
    desk.create("some of many", desk.new(desk.named("good")), desk.new("bad/name"), desk.new(desk.named("more")))
    desk.create("all alike", desk.new(desk.named("twin")), desk.new(desk.named("twin"), 2))


def refused_creation(stage: Stage) -> None:
    """What CreateTopics refuses, tried and meant (D1)."""
    desk = Desk(stage)
    desk.create("made", desk.new(desk.named("a.b")))
    for only in (True, False):
        told = "tried" if only else "meant"
        for name in ("", ".", "..", "bad/name", "ä", "n" * 250, "__cluster_metadata", desk.named("a_b")):
            desk.create(f"{told}: the name {name!r}", desk.new(name), validate_only=only)
        for partitions, replicas in ((0, 1), (-2, 1), (1, 0), (1, -2), (1, 2), (0, 0), (-1, 2)):
            one = desk.new(desk.named("n"), partitions, replicas)
            desk.create(f"{told}: {partitions} partitions, {replicas} replicas", one, validate_only=only)
        for placed in (
            [(0, [])],
            [(0, [7])],
            [(0, [1, 1])],
            [(0, [1, 7])],
            [(1, [1])],
            [(0, [1]), (2, [1])],
            [(0, [1]), (0, [1])],
            [(-1, [1])],
        ):
            desk.create(
                f"{told}: placed {placed}", desk.new(desk.named("h"), -1, -1, by_hand=placed), validate_only=only
            )
        for counts in ((1, -1), (-1, 1), (1, 1)):
            one = desk.new(desk.named("h"), *counts, by_hand=[(0, [1])])
            desk.create(f"{told}: by hand and {counts}", one, validate_only=only)
        desk.create(f"{told}: null", desk.new(desk.named("s"), retention_ms=None), validate_only=only)


def refused_settings(stage: Stage) -> None:
    """Values that no topic may have, by CreateTopics (D1)."""
    desk = Desk(stage)

    def code(answer: Any) -> Any:
        return [topic.error_code for topic in answer.topics]

    for name, values in BAD_SETTINGS.items():
        for value in values:
            one = desk.new(desk.named("s"), **{name: value})
            desk.ask(f"{name}={value}", CREATE_TOPICS, 7, code, topics=[one], validate_only=True)
    both = {"min_compaction_lag_ms": "5", "max_compaction_lag_ms": "4"}
    desk.ask("two together", CREATE_TOPICS, 7, code, topics=[desk.new(desk.named("s"), **both)], validate_only=True)


def deletion(stage: Stage) -> None:
    """DeleteTopics by name and by id (D1, KIP-516)."""
    desk = Desk(stage)
    topics = [desk.topic(f"t{number}") for number in range(5)]
    states = {name: message(DELETE_TOPICS, "DeleteTopicState", name=name) for name, _ in topics}
    ids = {name: message(DELETE_TOPICS, "DeleteTopicState", topic_id=topic_id) for name, topic_id in topics}
    (a, a_id), (b, _), (c, c_id), (d, _), _ = topics

    def delete(step: str, *wanted: Any) -> None:
        desk.ask(step, DELETE_TOPICS, 6, _by_name_and_id, topics=list(wanted), timeout_ms=10_000)

    none = desk.named("none")
    for version in range(1, 6):
        names = [none, "bad/name", ""]
        desk.ask("no such", DELETE_TOPICS, version, _by_name, topic_names=names, timeout_ms=10_000)
        desk.ask("no such, twice", DELETE_TOPICS, version, _by_name, topic_names=[none, none], timeout_ms=10_000)
    delete("no such", message(DELETE_TOPICS, "DeleteTopicState", name=none))
    delete("no such id", message(DELETE_TOPICS, "DeleteTopicState", topic_id=b"z" * 16))
    delete("neither", message(DELETE_TOPICS, "DeleteTopicState", name=None))
    delete("both", message(DELETE_TOPICS, "DeleteTopicState", name=a, topic_id=a_id))
    delete("twice by name", states[a], states[a], states[b])
    delete("twice by id", ids[a], ids[a])
    delete("once by name, once by id", states[a], ids[a])
    delete("by id", ids[c])
    desk.ask("by name", DELETE_TOPICS, 5, _by_name, topic_names=[d], timeout_ms=10_000)
    gone = [message(METADATA, "MetadataRequestTopic", topic_id=c_id, name=None)]
    desk.until(METADATA, 12, lambda answer: answer.topics[0].error_code != 0, topics=gone)
    delete("by id again", ids[c])
    desk.ask("asked for by id", METADATA, 12, _topics, topics=gone)


def _by_name(answer: Any) -> Any:
    return ordered(answer.responses, "name")


def _by_name_and_id(answer: Any) -> Any:
    return ordered(answer.responses, "name", "topic_id", "error_code")


def _topics(answer: Any) -> Any:
    return ordered(answer.topics, "name", "topic_id")


def growth(stage: Stage) -> None:
    """CreatePartitions (D1)."""
    desk = Desk(stage)
    topic, _ = desk.topic("g", 2)
    none = desk.named("none")

    def grow(
        step: str, count: int, *placed: list[int], name: str = topic, version: int = 3, only: bool = False
    ) -> None:
        by_hand = [message(CREATE_PARTITIONS, "CreatePartitionsAssignment", broker_ids=one) for one in placed]
        one = message(
            CREATE_PARTITIONS, "CreatePartitionsTopic", name=name, count=count, assignments=by_hand if placed else None
        )
        desk.ask(step, CREATE_PARTITIONS, version, _results, topics=[one], timeout_ms=10_000, validate_only=only)

    for version in range(4):
        grow("no such topic", 3, name=none, version=version)
        grow("as many", 2, version=version)
        grow("fewer", 1, version=version)
        grow("tried", 3, version=version, only=True)
    for count in (0, -1):
        grow(f"to {count}", count)
    for placed in ([[1], [1]], [[]], [[7]], [[1, 1]], [[1, 7]]):
        grow(f"placed {placed}", 3, *placed)
    one = message(CREATE_PARTITIONS, "CreatePartitionsTopic", name=topic, count=4, assignments=None)
    two = message(CREATE_PARTITIONS, "CreatePartitionsTopic", name=topic, count=5, assignments=None)
    desk.ask("twice", CREATE_PARTITIONS, 3, _results, topics=[one, two], timeout_ms=10_000)
    grow("meant", 3, [1])
    asked = [message(METADATA, "MetadataRequestTopic", name=topic)]
    desk.until(METADATA, 12, lambda answer: len(answer.topics[0].partitions) == 3, topics=asked)


def _results(answer: Any) -> Any:
    return ordered(answer.results, "name")


def topic_settings(stage: Stage) -> None:
    """Settings of topics: listed with synonyms, set, taken away, appended, refused (D2)."""
    desk = Desk(stage)
    topic, _ = desk.topic("c", cleanup_policy="compact")
    for version in range(1, 5):
        desk.describe("all", TOPIC, topic, version=version)
    desk.describe("some", TOPIC, topic, "retention.ms", "no.such", "cleanup.policy")
    for name in (desk.named("none"), "bad/name", ""):
        desk.describe(f"of {name!r}", TOPIC, name)
    desk.alter("of no topic", TOPIC, desk.named("none"), ("retention.ms", SET, "1"))
    for version in (0, 1):
        desk.alter("tried", TOPIC, topic, ("retention.ms", SET, "77"), only=True, version=version)
    desk.alter("set", TOPIC, topic, ("retention.ms", SET, "77"), ("cleanup.policy", APPEND, "delete"))
    desk.settled(TOPIC, topic, "retention.ms", "77")
    desk.describe("set", TOPIC, topic, "retention.ms", "cleanup.policy")
    desk.alter("append what is there", TOPIC, topic, ("cleanup.policy", APPEND, "delete"))
    desk.alter("subtract", TOPIC, topic, ("cleanup.policy", SUBTRACT, "compact"), ("retention.ms", DELETE, None))
    desk.settled(TOPIC, topic, "cleanup.policy", "delete")
    desk.describe("subtracted", TOPIC, topic, "retention.ms", "cleanup.policy")
    for told, edit in (
        ("a bad value", ("retention.ms", SET, "soon")),
        ("an unknown name", ("no.such", SET, "1")),
        ("an unknown name deleted", ("no.such", DELETE, None)),
        ("null", ("retention.ms", SET, None)),
        ("append to a number", ("retention.ms", APPEND, "1")),
        ("append null", ("cleanup.policy", APPEND, None)),
        ("append a bad member", ("cleanup.policy", APPEND, "none")),
        ("a file's settings", ("message.timestamp.type", SET, "LogAppendTime")),
    ):
        desk.alter(told, TOPIC, topic, edit, only=True)
    desk.alter("twice", TOPIC, topic, ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
    desk.alter("nothing", TOPIC, topic)
    _replaced(desk, topic)


def _replaced(desk: Desk, topic: str) -> None:
    for version in range(3):
        for told, settings in (
            ("replaced", {"retention.ms": f"{version + 5}"}),
            ("a bad value", {"retention.ms": "soon"}),
            ("an unknown name", {"no.such": "1"}),
            ("null", {"retention.ms": None}),
        ):
            configs = [message(33, "AlterableConfig", name=name, value=value) for name, value in settings.items()]
            resource = message(33, "AlterConfigsResource", resource_type=TOPIC, resource_name=topic, configs=configs)
            desk.ask(told, 33, version, resources=[resource])
        desk.settled(TOPIC, topic, "retention.ms", f"{version + 5}")
        desk.describe("replaced", TOPIC, topic, "retention.ms", "cleanup.policy")


def other_settings(stage: Stage) -> None:
    """Settings of brokers, groups, client metrics and loggers, and of what there is not (D2)."""
    desk = Desk(stage)
    some = ("log.cleaner.threads", "message.max.bytes", "log.retention.hours", "compression.type", "fetch.max.bytes")
    desk.describe("some of the broker", BROKER, "1", *some)
    for name in ("7", "one", "-1"):
        desk.describe(f"of broker {name}", BROKER, name)
        desk.alter(f"of broker {name}", BROKER, name, ("log.cleaner.threads", SET, "1"), only=True)
    for told, edit in (
        ("no number", ("log.cleaner.threads", SET, "two")),
        ("out of bounds", ("message.max.bytes", SET, "-1")),
        ("read-only", ("node.id", SET, "5")),
        ("read-only, too", ("auto.create.topics.enable", SET, "false")),
        ("null", ("message.max.bytes", SET, None)),
        ("append to a number", ("message.max.bytes", APPEND, "1")),
        ("what has no effect on one node", ("num.replica.fetchers", SET, "2")),
    ):
        for name in ("", "1"):
            desk.alter(f"{told} of {name!r}", BROKER, name, edit, only=True)
    _groups_and_metrics(desk)
    for kind in (0, 1, 3, 64):
        desk.describe(f"of kind {kind}", kind, "x")
        desk.alter(f"of kind {kind}", kind, "x", ("a", SET, "1"))
    for version in (0, 1):
        twice = message(INCREMENTAL, "AlterConfigsResource", resource_type=GROUP, resource_name="g", configs=[])
        desk.ask("the same twice", INCREMENTAL, version, resources=[twice, twice])


def _groups_and_metrics(desk: Desk) -> None:
    group = desk.named("group")
    desk.describe("of a group", GROUP, group, "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms")
    desk.describe("of no group", GROUP, "")
    desk.alter("of no group", GROUP, "", ("consumer.session.timeout.ms", SET, "50000"))
    for value in ("50000", "1", "x", "70000"):
        desk.alter(f"session {value}", GROUP, group, ("consumer.session.timeout.ms", SET, value))
    desk.alter("an unknown name", GROUP, group, ("no.such", SET, "1"))
    desk.settled(GROUP, group, "consumer.session.timeout.ms", "50000")
    desk.describe("of a group, set", GROUP, group, "consumer.session.timeout.ms")
    desk.alter("taken away", GROUP, group, ("consumer.session.timeout.ms", DELETE, None))
    metrics = desk.named("metrics")
    desk.describe("of metrics", CLIENT_METRICS, metrics)
    desk.describe("of no metrics", CLIENT_METRICS, "")
    for name, value in (
        ("interval.ms", "99"),
        ("interval.ms", "x"),
        ("interval.ms", "3600001"),
        ("match", "no pair"),
        ("match", "nobody=x"),
        ("match", "client_id=("),
        ("no.such", "1"),
        ("interval.ms", "1000"),
    ):
        desk.alter(f"{name}={value}", CLIENT_METRICS, metrics, (name, SET, value))
    desk.settled(CLIENT_METRICS, metrics, "interval.ms", "1000")
    desk.alter("appended", CLIENT_METRICS, metrics, ("metrics", APPEND, "org.b"))
    desk.alter("set", CLIENT_METRICS, metrics, ("metrics", SET, "org.apache"), ("match", SET, "client_id=a.*"))
    desk.alter("of no metrics", CLIENT_METRICS, "", ("interval.ms", SET, "1000"))
    desk.settled(CLIENT_METRICS, metrics, "metrics", "org.apache")
    desk.describe("of metrics, set", CLIENT_METRICS, metrics)
    desk.ask(
        "listed",
        74,
        0,
        lambda answer: [one.resource_name for one in answer.config_resources if one.resource_name == metrics],
    )
    edits = [(name, DELETE, None) for name in ("interval.ms", "metrics", "match")]
    desk.alter("taken away", CLIENT_METRICS, metrics, *edits)


def loggers(stage: Stage) -> None:
    """Settings of loggers: their levels (KIP-412)."""
    desk = Desk(stage)
    for name in ("7", "", "one"):
        desk.describe(f"of {name!r}", BROKER_LOGGER, name)
        desk.alter(f"of {name!r}", BROKER_LOGGER, name, ("root", SET, "INFO"))
    desk.describe("root", BROKER_LOGGER, "1", "root")
    for told, edit in (
        ("a level", ("root", SET, "INFO")),
        ("no level", ("root", SET, "LOUD")),
        ("null", ("root", SET, None)),
        ("no logger", ("no.such", SET, "INFO")),
        ("no logger deleted", ("no.such", DELETE, None)),
        ("root deleted", ("root", DELETE, None)),
        ("append", ("root", APPEND, "INFO")),
        ("subtract", ("root", SUBTRACT, "INFO")),
    ):
        desk.alter(told, BROKER_LOGGER, "1", edit, only=True)
    desk.alter("twice", BROKER_LOGGER, "1", ("root", SET, "INFO"), ("root", SET, "INFO"))
    configs = [message(33, "AlterableConfig", name="root", value="INFO")]
    resource = message(33, "AlterConfigsResource", resource_type=BROKER_LOGGER, resource_name="1", configs=configs)
    desk.ask("the older way", 33, 2, resources=[resource], validate_only=True)


PLAYS: dict[str, Callable[[Stage], None]] = {
    play.__name__: play
    for play in (
        creation,
        refused_creation,
        refused_settings,
        deletion,
        growth,
        topic_settings,
        other_settings,
        loggers,
        *CLUSTER_PLAYS,
    )
}
