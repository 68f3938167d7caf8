"""The rules of topics, configurations and features (kafka-rules D1, D2, M3), asked of the pure controllers."""

import pytest

from fencepost.broker.config.broker_config import load_config
from fencepost.broker.config.topic_rules import TopicRules
from fencepost.coordinator.metadata.commands import (
    ConfigEdit,
    ConfigEdits,
    FeatureUpdate,
    MorePartitions,
    NewTopic,
    TopicRef,
)
from fencepost.coordinator.metadata.config_controller import ConfigController
from fencepost.coordinator.metadata.controller import TopicController
from fencepost.coordinator.metadata.features import update_features
from fencepost.coordinator.metadata.image import MetadataImage
from fencepost.coordinator.metadata.ports import ClusterFacts
from fencepost.coordinator.metadata.transactions import MetadataLoader
from fencepost.protocol.admin_enums import ConfigOperation, UpgradeType
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.metadata_entries import PartitionRun
from fencepost.protocol.metadata_record_types import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from tests.unit.metadata.kit import Ids

FACTS = ClusterFacts(cluster_id="c", node_id=1, default_partitions=2, topic_partitions_max=50, change_records_max=60)
RULES = TopicRules(load_config())
TOPICS = TopicController(FACTS, RULES, Ids())
CONFIGS = ConfigController(FACTS, RULES)


def image_with(*topics: NewTopic) -> MetadataImage:
    loader = MetadataLoader()
    decision = TopicController(FACTS, RULES, Ids(100)).create_topics(loader.image, list(topics))
    features = [FeatureLevelRecord("metadata.version", 25), FeatureLevelRecord("transaction.version", 2)]
    loader.load_batch(0, [*decision.log, *features])
    return loader.image


EMPTY = image_with()
FULL = image_with(
    NewTopic("a.b", 3, configs={"retention.ms": "5", "cleanup.policy": "compact"}),
    NewTopic("z"),
    NewTopic("__consumer_offsets", 5),
)


def code_of(topic: NewTopic, image: MetadataImage = FULL) -> ErrorCode:
    decision = TOPICS.create_topics(image, [topic])
    code = decision.reply[0].outcome.code
    assert (code is ErrorCode.NONE) == bool(decision.log), "a refused topic leaves no records"
    assert (code is ErrorCode.NONE) == (decision.reply[0].outcome.message is None), "every refusal has its reason"
    return code


def test_a_topic_is_its_record_its_configs_and_its_partitions_in_this_order() -> None:
    """Kafka's order of records."""
    decision = TOPICS.create_topics(EMPTY, [NewTopic("n", 2, 1, configs={"retention.ms": "9"})])
    [reply] = decision.reply
    assert [type(record) for record in decision.log] == [TopicRecord, ConfigRecord, PartitionRun]
    assert (reply.partitions, reply.replication_factor, reply.configs) == (2, 1, {"retention.ms": "9"})
    assert decision.log[0] == TopicRecord("n", reply.topic_id)
    [_, _, run] = decision.log
    assert isinstance(run, PartitionRun)
    assert [*run.records()] == [
        PartitionRecord(number, reply.topic_id, (1,), (1,), leader=1, directories=(bytes(16),)) for number in range(2)
    ]


def test_minus_one_means_the_brokers_defaults() -> None:
    """KIP-464."""
    [reply] = TOPICS.create_topics(EMPTY, [NewTopic("n")]).reply
    assert (reply.partitions, reply.replication_factor) == (2, 1)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (".", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("..", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("x" * 250, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("x" * 249, ErrorCode.NONE),
        ("bad/name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("naïve", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("Ok.-_9", ErrorCode.NONE),
        ("a_b", ErrorCode.INVALID_TOPIC_EXCEPTION),  # collides with a.b
        ("a.b", ErrorCode.TOPIC_ALREADY_EXISTS),
        ("__cluster_metadata", ErrorCode.INVALID_REQUEST),
        ("__consumer_offsets", ErrorCode.TOPIC_ALREADY_EXISTS),
    ],
)
def test_names(name: str, code: ErrorCode) -> None:
    assert code_of(NewTopic(name, 1, 1)) is code


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic("n", 0, 1), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("n", -2, 1), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("n", 51, 1), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("n", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("n", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("n", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("n", 0, 99), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("n", 1, 1, configs={"no.such": "1"}), ErrorCode.INVALID_CONFIG),
        (NewTopic("n", 1, 1, configs={"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG),
        (NewTopic("n", 1, 1, configs={"retention.ms": None}), ErrorCode.INVALID_CONFIG),
        (NewTopic("n", -1, -1, ((0, (1,)), (1, (1,)))), ErrorCode.NONE),
        (NewTopic("n", 2, -1, ((0, (1,)),)), ErrorCode.INVALID_REQUEST),
        (NewTopic("n", -1, 1, ((0, (1,)),)), ErrorCode.INVALID_REQUEST),
        (NewTopic("n", -1, -1, ((0, (2,)),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("n", -1, -1, ((0, ()),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("n", -1, -1, ((0, (1, 1)),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("n", -1, -1, ((0, (1,)), (2, (1,)))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("n", -1, -1, ((0, (1,)), (0, (1,)))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_counts_factors_configs_and_assignments(topic: NewTopic, code: ErrorCode) -> None:
    assert code_of(topic) is code


def test_each_topic_of_a_request_stands_for_itself() -> None:
    decision = TOPICS.create_topics(FULL, [NewTopic("x"), NewTopic("z"), NewTopic("x.y"), NewTopic("x_y")])
    codes = {reply.name: reply.outcome.code for reply in decision.reply}
    assert codes == {
        "x": ErrorCode.NONE,
        "z": ErrorCode.TOPIC_ALREADY_EXISTS,
        "x.y": ErrorCode.NONE,
        "x_y": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert [record.name for record in decision.log if isinstance(record, TopicRecord)] == ["x", "x.y"]


def test_a_name_that_comes_twice_is_not_created_at_all() -> None:
    decision = TOPICS.create_topics(EMPTY, [NewTopic("x"), NewTopic("y"), NewTopic("x", 3)])
    assert [(reply.name, reply.outcome.code) for reply in decision.reply] == [
        ("y", ErrorCode.NONE),
        ("x", ErrorCode.INVALID_REQUEST),
    ]
    assert [record.name for record in decision.log if isinstance(record, TopicRecord)] == ["y"]


def test_validate_only_answers_the_same_and_writes_nothing() -> None:
    topics = [NewTopic("x"), NewTopic("z")]
    validated, done = TOPICS.create_topics(FULL, topics, True), TOPICS.create_topics(FULL, topics)
    assert validated.log == ()
    assert done.log
    assert [reply.outcome for reply in validated.reply] == [reply.outcome for reply in done.reply]


def test_one_request_is_bounded() -> None:
    """E.6: no change without a bound."""
    decision = TOPICS.create_topics(EMPTY, [NewTopic("x", 40), NewTopic("y", 40), NewTopic("v", 5)])
    assert [reply.outcome.code for reply in decision.reply] == [
        ErrorCode.NONE,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.NONE,
    ]
    assert len(decision.log) <= FACTS.change_records_max


def test_deletion_by_name_and_by_id() -> None:
    ab, z = FULL.topics_by_name["a.b"], FULL.topics_by_name["z"]
    decision = TOPICS.delete_topics(FULL, [TopicRef("a.b"), TopicRef(None, z.topic_id)])
    assert decision.log == (RemoveTopicRecord(ab.topic_id), RemoveTopicRecord(z.topic_id))
    assert [(reply.name, reply.topic_id, reply.outcome.code) for reply in decision.reply] == [
        ("a.b", ab.topic_id, ErrorCode.NONE),
        ("z", z.topic_id, ErrorCode.NONE),
    ]


@pytest.mark.parametrize(
    ("refs", "code"),
    [
        ([TopicRef("gone")], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ([TopicRef(None, b"9" * 16)], ErrorCode.UNKNOWN_TOPIC_ID),
        ([TopicRef()], ErrorCode.INVALID_REQUEST),
        ([TopicRef("z", b"9" * 16)], ErrorCode.INVALID_REQUEST),
        ([TopicRef("z"), TopicRef("z")], ErrorCode.INVALID_REQUEST),
        ([TopicRef("z"), TopicRef(None, FULL.topics_by_name["z"].topic_id)], ErrorCode.INVALID_REQUEST),
        ([TopicRef("__consumer_offsets")], ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_deleted(refs: list[TopicRef], code: ErrorCode) -> None:
    decision = TOPICS.delete_topics(FULL, refs)
    assert {reply.outcome.code for reply in decision.reply} == {code}
    assert decision.log == ()


def test_deletion_can_be_switched_off() -> None:
    facts = ClusterFacts(cluster_id="c", node_id=1, delete_topics=False)
    decision = TopicController(facts, RULES, Ids()).delete_topics(FULL, [TopicRef("z")])
    assert decision.reply[0].outcome.code is ErrorCode.TOPIC_DELETION_DISABLED
    assert decision.log == ()


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (MorePartitions("a.b", 3), ErrorCode.INVALID_PARTITIONS),
        (MorePartitions("a.b", 2), ErrorCode.INVALID_PARTITIONS),
        (MorePartitions("a.b", 51), ErrorCode.INVALID_PARTITIONS),
        (MorePartitions("gone", 4), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (MorePartitions("a.b", 5, ((1,),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (MorePartitions("a.b", 4, ((2,),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (MorePartitions("__consumer_offsets", 9), ErrorCode.INVALID_REQUEST),
        (MorePartitions("a.b", 4, ((1,),)), ErrorCode.NONE),
        (MorePartitions("a.b", 5), ErrorCode.NONE),
    ],
)
def test_growth(wanted: MorePartitions, code: ErrorCode) -> None:
    decision = TOPICS.create_partitions(FULL, [wanted])
    assert decision.reply[0][1].code is code
    assert (code is ErrorCode.NONE) == bool(decision.log)


def test_growth_names_the_new_partitions() -> None:
    decision = TOPICS.create_partitions(
        FULL, [MorePartitions("a.b", 5), MorePartitions("z", 9), MorePartitions("z", 8)]
    )
    [run] = decision.log
    assert isinstance(run, PartitionRun)
    assert [record.partition_id for record in run.records()] == [3, 4]
    assert [outcome.code for _, outcome in decision.reply] == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    assert TOPICS.create_partitions(FULL, [MorePartitions("a.b", 5)], True).log == ()


def edit(name: str, operation: int, value: str | None = None, resource: str = "a.b", kind: int = 2) -> ConfigEdits:
    return ConfigEdits(kind, resource, (ConfigEdit(name, operation, value),))


@pytest.mark.parametrize(
    ("change", "records"),
    [
        (edit("retention.ms", ConfigOperation.SET, "7"), [("retention.ms", "7")]),
        (edit("retention.ms", ConfigOperation.SET, "5"), []),
        (edit("retention.ms", ConfigOperation.DELETE), [("retention.ms", None)]),
        (edit("segment.ms", ConfigOperation.DELETE), []),
        (edit("cleanup.policy", ConfigOperation.APPEND, "delete"), [("cleanup.policy", "compact,delete")]),
        (edit("cleanup.policy", ConfigOperation.APPEND, "compact"), []),
        (edit("cleanup.policy", ConfigOperation.SUBTRACT, "compact"), [("cleanup.policy", "")]),
        (edit("cleanup.policy", ConfigOperation.APPEND, "compact", "z"), [("cleanup.policy", "delete,compact")]),
    ],
)
def test_incremental_edits(change: ConfigEdits, records: list[tuple[str, str | None]]) -> None:
    """KIP-339; APPEND to what was never set starts from what holds."""
    decision = CONFIGS.alter(FULL, [change])
    assert decision.reply[0].code is ErrorCode.NONE
    assert list(decision.log) == [ConfigRecord(2, change.resource_name, name, value) for name, value in records]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (edit("retention.ms", ConfigOperation.SET, "soon"), ErrorCode.INVALID_CONFIG),
        (edit("no.such", ConfigOperation.SET, "1"), ErrorCode.INVALID_CONFIG),
        (edit("retention.ms", ConfigOperation.APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (edit("retention.ms", ConfigOperation.SET, None), ErrorCode.INVALID_REQUEST),
        (edit("retention.ms", 9, "1"), ErrorCode.INVALID_REQUEST),
        (edit("retention.ms", ConfigOperation.SET, "1", "gone"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (edit("retention.ms", ConfigOperation.SET, "1", "a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (edit("x", ConfigOperation.SET, "1", "z", 99), ErrorCode.INVALID_REQUEST),
        (edit("log.retention.ms", ConfigOperation.SET, "1", "2", 4), ErrorCode.BROKER_ID_NOT_REGISTERED),
        (edit("log.retention.ms", ConfigOperation.SET, "1", "one", 4), ErrorCode.BROKER_ID_NOT_REGISTERED),
        (edit("log.retention.ms", ConfigOperation.SET, "x", "1", 4), ErrorCode.INVALID_REQUEST),
        (edit("node.id", ConfigOperation.SET, "7", "1", 4), ErrorCode.INVALID_REQUEST),
        (edit("node.id", ConfigOperation.DELETE, None, "1", 4), ErrorCode.INVALID_REQUEST),
        (edit("log.retention.ms", ConfigOperation.SET, "1", "1", 4), ErrorCode.NONE),
        (edit("log.retention.ms", ConfigOperation.SET, "1", "", 4), ErrorCode.NONE),
    ],
)
def test_edits_are_checked(change: ConfigEdits, code: ErrorCode) -> None:
    """Row D2; Kafka's QuorumController.ConfigResourceExistenceChecker for brokers, of which each checks its own id."""
    decision = CONFIGS.alter(FULL, [change])
    assert decision.reply[0].code is code
    assert bool(decision.log) == (code is ErrorCode.NONE)


def test_one_bad_edit_keeps_its_resource_as_it_was_and_leaves_the_others_alone() -> None:
    bad = ConfigEdits(2, "a.b", (ConfigEdit("segment.ms", 0, "9"), ConfigEdit("retention.ms", 0, "x")))
    decision = CONFIGS.alter(FULL, [bad, edit("retention.ms", 0, "1", "z")])
    assert [outcome.code for outcome in decision.reply] == [ErrorCode.INVALID_CONFIG, ErrorCode.NONE]
    assert decision.log == (ConfigRecord(2, "z", "retention.ms", "1"),)


def test_a_name_or_a_resource_that_comes_twice_is_refused() -> None:
    names = ConfigEdits(2, "z", (ConfigEdit("segment.ms", 0, "9"), ConfigEdit("segment.ms", 0, "8")))
    assert CONFIGS.alter(FULL, [names]).reply[0].code is ErrorCode.INVALID_REQUEST
    twice = CONFIGS.alter(FULL, [edit("segment.ms", 0, "1"), edit("retention.ms", 0, "2")])
    assert [outcome.code for outcome in twice.reply] == [ErrorCode.INVALID_REQUEST] * 2
    assert twice.log == ()


def test_the_older_way_takes_away_what_is_not_named() -> None:
    """AlterConfigs: the whole set is replaced."""
    change = ConfigEdits(2, "a.b", (ConfigEdit("retention.ms", 0, "6"),), replace_all=True)
    decision = CONFIGS.alter(FULL, [change])
    assert set(decision.log) == {
        ConfigRecord(2, "a.b", "retention.ms", "6"),
        ConfigRecord(2, "a.b", "cleanup.policy", None),
    }
    assert CONFIGS.alter(FULL, [change], True).log == ()


@pytest.mark.parametrize(
    ("update", "code", "part"),
    [
        (FeatureUpdate("transaction.version", 1), ErrorCode.INVALID_UPDATE_VERSION, "without setting the upgrade type"),
        (FeatureUpdate("transaction.version", 1, UpgradeType.SAFE_DOWNGRADE), ErrorCode.NONE, ""),
        (FeatureUpdate("transaction.version", 0, UpgradeType.UNSAFE_DOWNGRADE), ErrorCode.NONE, ""),
        (FeatureUpdate("transaction.version", 2), ErrorCode.NONE, ""),
        (FeatureUpdate("transaction.version", 3), ErrorCode.INVALID_UPDATE_VERSION, "supports versions 0 to 2"),
        (FeatureUpdate("transaction.version", -1), ErrorCode.INVALID_UPDATE_VERSION, "less than 0"),
        (FeatureUpdate("transaction.version", 2, 9), ErrorCode.INVALID_UPDATE_VERSION, "upgrade type"),
        (FeatureUpdate("share.version", 2), ErrorCode.NONE, ""),
        (FeatureUpdate("share.version", 3), ErrorCode.INVALID_UPDATE_VERSION, "supports versions 0 to 2"),
        (FeatureUpdate("no.such", 1), ErrorCode.INVALID_UPDATE_VERSION, "not known"),
        (FeatureUpdate("metadata.version", 26), ErrorCode.INVALID_UPDATE_VERSION, "supports versions 7 to 25"),
        (FeatureUpdate("metadata.version", 24, UpgradeType.SAFE_DOWNGRADE), ErrorCode.NONE, ""),
        (
            FeatureUpdate("metadata.version", 22, UpgradeType.SAFE_DOWNGRADE),
            ErrorCode.INVALID_UPDATE_VERSION,
            "Refusing",
        ),
        (FeatureUpdate("metadata.version", 0, UpgradeType.SAFE_DOWNGRADE), ErrorCode.INVALID_UPDATE_VERSION, "Unknown"),
        (FeatureUpdate("metadata.version", 25, UpgradeType.SAFE_DOWNGRADE), ErrorCode.NONE, ""),
    ],
)
def test_features(update: FeatureUpdate, code: ErrorCode, part: str) -> None:
    """KIP-584: up freely, down only when it was said, never out of the range."""
    decision = update_features(FULL, [update])
    assert decision.reply.code is code
    assert part in (decision.reply.message or "")
    assert bool(decision.log) == (code is ErrorCode.NONE)


def test_features_are_updated_all_or_none() -> None:
    good = FeatureUpdate("transaction.version", 1, UpgradeType.SAFE_DOWNGRADE)
    decision = update_features(FULL, [good, FeatureUpdate("no.such", 1)])
    assert decision.reply.code is ErrorCode.INVALID_UPDATE_VERSION
    assert decision.log == ()
    assert update_features(FULL, [good, good]).reply.code is ErrorCode.INVALID_REQUEST
    assert update_features(FULL, [good], True).log == ()
