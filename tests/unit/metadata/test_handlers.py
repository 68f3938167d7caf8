"""The metadata APIs at every version, over the wire's bytes in both directions, against an in-memory service."""

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import pytest

from fencepost.broker.config import BrokerConfig, load_config
from fencepost.broker.context import Endpoint, RequestContext
from fencepost.broker.topic_config import ConfigSource
from fencepost.coordinator.metadata.commands import NewTopic
from fencepost.coordinator.metadata.service import MetadataService
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.registry import API_BY_KEY
from tests.unit.metadata.kit import CLUSTER_ID, started, user_topics

HANDLERS = {
    3: "api03_metadata",
    19: "api19_create_topics",
    20: "api20_delete_topics",
    32: "api32_describe_configs",
    33: "api33_alter_configs",
    37: "api37_create_partitions",
    44: "api44_incremental_alter_configs",
    57: "api57_update_features",
    60: "api60_describe_cluster",
    75: "api75_describe_topic_partitions",
}
TOPIC_BITS, CLUSTER_BITS = 0b1101_1111_1000, 0b1_1111_1010_0000
NOT_ASKED = -(2**31)


@dataclass
class NodeDouble:
    """What these handlers ask of a node."""

    config: BrokerConfig
    metadata: MetadataService


async def node(*settings: str) -> NodeDouble:
    config = load_config(assignments=settings)
    cluster = await started(config=config)
    await cluster.service.create_topics([NewTopic("a", 3, configs={"retention.ms": "5"}), NewTopic("b")])
    return NodeDouble(config, cluster.service)


def messages(key: int) -> Any:
    return import_module(f"fencepost.protocol.messages.{HANDLERS[key]}")


async def ask(on: NodeDouble, key: int, version: int, request: Any) -> Any:
    """Send `request` through its bytes, handle it, send the answer through its bytes."""
    api = API_BY_KEY[key]
    request = api.request.decode(api.request.encode(request, version), version)
    context = RequestContext(key, version, 1, "client", "127.0.0.1", Endpoint("host", 9092))
    answer = await import_module(f"fencepost.broker.handlers.{HANDLERS[key]}").handle(on, request, context)
    return api.response.decode(api.response.encode(answer, version), version)


def versions(*keys: int) -> pytest.MarkDecorator:
    pairs = [(key, v) for key in keys for v in range(API_BY_KEY[key].served[0], API_BY_KEY[key].served[1] + 1)]
    return pytest.mark.parametrize("version", [version for _, version in pairs])


# ---- Metadata


@versions(3)
async def test_metadata_of_everything(version: int) -> None:
    """Null is all topics since v1, an empty list before."""
    on = await node("broker.rack=r1")
    answer = await ask(on, 3, version, messages(3).MetadataRequest(topics=[] if version == 0 else None))
    [broker] = answer.brokers
    assert (broker.node_id, broker.host, broker.port, broker.rack) == (1, "host", 9092, "r1" if version else None)
    assert (answer.cluster_id, answer.controller_id) == (CLUSTER_ID if version >= 2 else None, 1 if version else -1)
    assert {topic.name for topic in answer.topics} == {"a", "b", "__consumer_offsets", "__transaction_state"}
    a = next(topic for topic in answer.topics if topic.name == "a")
    assert [partition.partition_index for partition in a.partitions] == [0, 1, 2]
    assert (a.partitions[1].leader_id, a.partitions[1].replica_nodes, a.partitions[1].isr_nodes) == (1, [1], [1])
    assert a.partitions[0].leader_epoch == (0 if version >= 7 else -1)
    assert a.topic_id == (on.metadata.topic_id("a") if version >= 10 else bytes(16))
    offsets = next(topic for topic in answer.topics if topic.name == "__consumer_offsets")
    assert offsets.is_internal == (version >= 1)


@versions(3)
async def test_metadata_of_no_topics(version: int) -> None:
    answer = await ask(await node(), 3, version, messages(3).MetadataRequest(topics=[]))
    assert (len(answer.topics) == 0) == (version > 0)


@versions(3)
async def test_metadata_creates_what_is_missing_where_both_sides_allow_it(version: int) -> None:
    """KIP-204: before v4 the client has no say."""
    on = await node("num.partitions=2")
    m = messages(3)
    for allowed in (False, True):
        request = m.MetadataRequest(
            topics=[m.MetadataRequestTopic(name=name) for name in ("new", "a", "new", "x/y")],
            allow_auto_topic_creation=allowed,
        )
        answer = await ask(on, 3, version, request)
        codes = {topic.name: topic.error_code for topic in answer.topics}
        there = allowed or version < 4
        expected = ErrorCode.NONE if there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert codes == {"new": expected, "a": 0, "x/y": ErrorCode.INVALID_TOPIC_EXCEPTION}
        assert ("new" in user_topics(on.metadata)) == there
    assert user_topics(on.metadata) == {"a": 3, "b": 2, "new": 2}


async def test_metadata_creates_nothing_where_the_broker_does_not_want_it() -> None:
    on = await node("auto.create.topics.enable=false")
    m = messages(3)
    answer = await ask(on, 3, 12, m.MetadataRequest(topics=[m.MetadataRequestTopic(name="new")]))
    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "new" not in user_topics(on.metadata)


async def test_metadata_by_topic_id() -> None:
    """KIP-516: from v12; an unknown id has no name in the answer."""
    on = await node()
    m = messages(3)
    a_id = on.metadata.topic_id("a")
    topics = [m.MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in (a_id, b"?" * 16)]
    answer = await ask(on, 3, 12, m.MetadataRequest(topics=topics))
    assert [(topic.name, topic.topic_id, topic.error_code) for topic in answer.topics] == [
        ("a", a_id, 0),
        (None, b"?" * 16, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    answer = await ask(on, 3, 10, m.MetadataRequest(topics=topics))
    assert {topic.error_code for topic in answer.topics} == {ErrorCode.INVALID_REQUEST}


@versions(3)
async def test_authorized_operations_are_all_there_are_and_only_when_asked(version: int) -> None:
    """KIP-430; what Kafka answers without an authorizer."""
    on = await node()
    m = messages(3)
    for wanted in (False, True):
        request = m.MetadataRequest(
            topics=[m.MetadataRequestTopic(name="a")],
            include_cluster_authorized_operations=wanted and 8 <= version <= 10,
            include_topic_authorized_operations=wanted and version >= 8,
        )
        answer = await ask(on, 3, version, request)
        topic_bits = TOPIC_BITS if wanted and version >= 8 else NOT_ASKED
        cluster_bits = CLUSTER_BITS if wanted and 8 <= version <= 10 else NOT_ASKED
        assert answer.topics[0].topic_authorized_operations == topic_bits
        assert answer.cluster_authorized_operations == cluster_bits


# ---- topics


@versions(19)
async def test_create_topics(version: int) -> None:
    on = await node()
    m = messages(19)
    topics = [
        m.CreatableTopic(
            name="new",
            num_partitions=2,
            replication_factor=1,
            configs=[m.CreatableTopicConfig(name="cleanup.policy", value="compact")],
        ),
        m.CreatableTopic(name="a", num_partitions=1, replication_factor=1),
        m.CreatableTopic(
            name="hand",
            num_partitions=-1,
            replication_factor=-1,
            assignments=[m.CreatableReplicaAssignment(partition_index=0, broker_ids=[1])],
        ),
    ]
    answer = await ask(on, 19, version, m.CreateTopicsRequest(topics=topics))
    new, a, hand = answer.topics
    assert [new.error_code, a.error_code, hand.error_code] == [0, ErrorCode.TOPIC_ALREADY_EXISTS, 0]
    assert bool(a.error_message) == (version >= 1)
    assert new.topic_id == (on.metadata.topic_id("new") if version >= 7 else bytes(16))
    assert user_topics(on.metadata) == {"a": 3, "b": 1, "new": 2, "hand": 1}
    if version >= 5:
        assert (new.num_partitions, new.replication_factor, hand.num_partitions) == (2, 1, 1)
        configs = {config.name: config for config in new.configs}
        assert configs["cleanup.policy"].value == "compact"
        assert configs["cleanup.policy"].config_source == ConfigSource.DYNAMIC_TOPIC_CONFIG
        assert configs["retention.ms"].value == "604800000"
        assert configs["retention.ms"].config_source == ConfigSource.DEFAULT_CONFIG
        assert [config.name for config in new.configs] == sorted(configs)


async def test_create_topics_validate_only() -> None:
    on = await node()
    m = messages(19)
    topic = m.CreatableTopic(name="new", num_partitions=1, replication_factor=1)
    answer = await ask(on, 19, 7, m.CreateTopicsRequest(topics=[topic], validate_only=True))
    assert answer.topics[0].error_code == 0
    assert "new" not in user_topics(on.metadata)


@versions(20)
async def test_delete_topics(version: int) -> None:
    on = await node()
    m = messages(20)
    if version >= 6:
        topics = [m.DeleteTopicState(topic_id=on.metadata.topic_id("a")), m.DeleteTopicState(name="gone")]
        request = m.DeleteTopicsRequest(topics=topics)
    else:
        request = m.DeleteTopicsRequest(topic_names=["a", "gone"])
    answer = await ask(on, 20, version, request)
    assert {entry.name: entry.error_code for entry in answer.responses} == {
        "a": 0,
        "gone": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert user_topics(on.metadata) == {"b": 1}


@versions(20)
async def test_deletion_that_is_switched_off_has_a_code_since_v3(version: int) -> None:
    on = await node("delete.topic.enable=false")
    m = messages(20)
    request = m.DeleteTopicsRequest(topic_names=["a"])
    if version >= 6:
        request = m.DeleteTopicsRequest(topics=[m.DeleteTopicState(name="a")])
    answer = await ask(on, 20, version, request)
    code = ErrorCode.TOPIC_DELETION_DISABLED if version >= 3 else ErrorCode.INVALID_REQUEST
    assert answer.responses[0].error_code == code
    assert "a" in user_topics(on.metadata)


@versions(37)
async def test_create_partitions(version: int) -> None:
    on = await node()
    m = messages(37)
    topics = [
        m.CreatePartitionsTopic(name="a", count=5, assignments=None),
        m.CreatePartitionsTopic(name="b", count=2, assignments=[m.CreatePartitionsAssignment(broker_ids=[1])]),
        m.CreatePartitionsTopic(name="gone", count=2, assignments=None),
    ]
    answer = await ask(on, 37, version, m.CreatePartitionsRequest(topics=topics))
    assert [(entry.name, entry.error_code) for entry in answer.results] == [
        ("a", 0),
        ("b", 0),
        ("gone", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert user_topics(on.metadata) == {"a": 5, "b": 2}


# ---- configurations


async def describe(on: NodeDouble, version: int, kind: int, name: str, keys=None, **more) -> Any:
    m = messages(32)
    resource = m.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    answer = await ask(on, 32, version, m.DescribeConfigsRequest(resources=[resource], **more))
    return answer.results[0]


@versions(32)
async def test_describe_configs_of_a_topic(version: int) -> None:
    on = await node("log.retention.hours=3")
    result = await describe(on, version, 2, "a")
    configs = {config.name: config for config in result.configs}
    assert configs["retention.ms"].value == "5"
    assert configs["cleanup.policy"].value == "delete"
    assert not configs["retention.ms"].read_only
    if version == 0:
        assert (configs["retention.ms"].is_default, configs["cleanup.policy"].is_default) == (False, True)
    else:
        assert configs["retention.ms"].config_source == ConfigSource.DYNAMIC_TOPIC_CONFIG
        assert configs["cleanup.policy"].config_source == ConfigSource.DEFAULT_CONFIG
    if version >= 3:
        assert (configs["retention.ms"].config_type, configs["cleanup.policy"].config_type) == (5, 7)
    [only] = (await describe(on, version, 2, "b", ["retention.ms"])).configs
    assert (only.name, only.value) == ("retention.ms", "10800000")


async def test_describe_configs_with_synonyms_and_documentation() -> None:
    """KIP-226, KIP-569."""
    on = await node("log.retention.hours=3")
    [plain] = (await describe(on, 4, 2, "a", ["retention.ms"])).configs
    assert (plain.synonyms, plain.documentation) == ([], None)
    [full] = (
        await describe(on, 4, 2, "a", ["retention.ms"], include_synonyms=True, include_documentation=True)
    ).configs
    assert [(entry.name, entry.value, entry.source) for entry in full.synonyms] == [
        ("retention.ms", "5", ConfigSource.DYNAMIC_TOPIC_CONFIG),
        ("log.retention.hours", "10800000", ConfigSource.STATIC_BROKER_CONFIG),
        ("log.retention.hours", "604800000", ConfigSource.DEFAULT_CONFIG),
    ]
    assert full.documentation


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (2, "gone", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (2, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (4, "7", ErrorCode.INVALID_REQUEST),
        (4, "one", ErrorCode.INVALID_REQUEST),
        (8, "1", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_describe_configs_of_what_there_is_not(kind: int, name: str, code: ErrorCode) -> None:
    result = await describe(await node(), 4, kind, name)
    assert (result.error_code, result.configs) == (code, [])
    assert (result.resource_type, result.resource_name) == (kind, name)


async def alter(on: NodeDouble, key: int, version: int, kind: int, name: str, *edits, validate_only=False) -> int:
    m = messages(key)
    if key == 33:
        configs = [m.AlterableConfig(name=config, value=value) for config, value in edits]
        resource = m.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
        request = m.AlterConfigsRequest(resources=[resource], validate_only=validate_only)
    else:
        configs = [m.AlterableConfig(name=config, config_operation=op, value=value) for config, op, value in edits]
        resource = m.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
        request = m.IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    [response] = (await ask(on, key, version, request)).responses
    assert (response.resource_type, response.resource_name) == (kind, name)
    assert (response.error_message is None) == (response.error_code == 0)
    return int(response.error_code)


@versions(33)
async def test_alter_configs_replaces_the_whole_set(version: int) -> None:
    on = await node()
    assert await alter(on, 33, version, 2, "a", ("segment.ms", "9"), validate_only=True) == 0
    assert on.metadata.image.topic_config("a") == {"retention.ms": "5"}
    assert await alter(on, 33, version, 2, "a", ("segment.ms", "9")) == 0
    assert on.metadata.image.topic_config("a") == {"segment.ms": "9"}
    assert await alter(on, 33, version, 2, "a", ("segment.ms", "soon")) == ErrorCode.INVALID_CONFIG


@versions(44)
async def test_incremental_alter_configs_edits(version: int) -> None:
    on = await node()
    edits = [("cleanup.policy", 2, "compact"), ("retention.ms", 1, None), ("segment.ms", 0, "7")]
    assert await alter(on, 44, version, 2, "a", *edits) == 0
    assert on.metadata.image.topic_config("a") == {"cleanup.policy": "delete,compact", "segment.ms": "7"}
    assert on.metadata.log_config("a").segment_ms == 7
    assert await alter(on, 44, version, 2, "a", ("segment.ms", 0, None)) == ErrorCode.INVALID_REQUEST


async def test_a_broker_setting_altered_for_all_reaches_every_topic_that_says_nothing() -> None:
    on = await node()
    assert await alter(on, 44, 1, 4, "", ("log.retention.ms", 0, "77")) == 0
    assert on.metadata.log_config("b").retention_ms == 77
    assert on.metadata.log_config("a").retention_ms == 5
    [entry] = (await describe(on, 4, 2, "b", ["retention.ms"])).configs
    assert (entry.value, entry.config_source) == ("77", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
    [cluster_wide] = (await describe(on, 4, 4, "")).configs
    assert (cluster_wide.name, cluster_wide.value) == ("log.retention.ms", "77")
    assert await alter(on, 44, 1, 4, "1", ("log.retention.ms", 0, "78")) == 0
    assert on.metadata.log_config("b").retention_ms == 78
    [own] = (await describe(on, 4, 4, "1", ["log.retention.ms"], include_synonyms=True)).configs
    assert [synonym.value for synonym in own.synonyms] == ["78", "77"]
    assert await alter(on, 44, 1, 4, "1", ("log.retention.ms", 1, None)) == 0
    assert on.metadata.log_config("b").retention_ms == 77


async def test_describe_configs_of_the_broker() -> None:
    result = await describe(await node("num.partitions=4"), 4, 4, "1")
    configs = {config.name: config for config in result.configs}
    assert (configs["num.partitions"].value, configs["num.partitions"].read_only) == ("4", True)
    assert configs["num.partitions"].config_source == ConfigSource.STATIC_BROKER_CONFIG
    assert not configs["log.retention.ms"].read_only
    assert not any(config.is_sensitive for config in result.configs)


# ---- features and the cluster


@versions(57)
async def test_update_features(version: int) -> None:
    """v0 says whether a downgrade is allowed, later versions how."""
    on = await node()
    m = messages(57)
    key = m.FeatureUpdateKey(feature="transaction.version", max_version_level=1, allow_downgrade=True, upgrade_type=2)
    answer = await ask(on, 57, version, m.UpdateFeaturesRequest(feature_updates=[key]))
    assert (answer.error_code, len(answer.results)) == (0, 1 if version < 2 else 0)
    assert on.metadata.features.finalized["transaction.version"] == 1
    down = m.FeatureUpdateKey(feature="transaction.version", max_version_level=0)
    answer = await ask(on, 57, version, m.UpdateFeaturesRequest(feature_updates=[down]))
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "without setting the upgrade type" in answer.error_message
    assert on.metadata.features.finalized["transaction.version"] == 1


@versions(60)
async def test_describe_cluster(version: int) -> None:
    on = await node("broker.rack=r")
    m = messages(60)
    answer = await ask(on, 60, version, m.DescribeClusterRequest(include_cluster_authorized_operations=True))
    assert (answer.error_code, answer.cluster_id, answer.controller_id) == (0, CLUSTER_ID, 1)
    [broker] = answer.brokers
    assert (broker.broker_id, broker.host, broker.port, broker.rack) == (1, "host", 9092, "r")
    assert answer.cluster_authorized_operations == CLUSTER_BITS
    answer = await ask(on, 60, version, m.DescribeClusterRequest())
    assert answer.cluster_authorized_operations == NOT_ASKED


@pytest.mark.parametrize(
    ("kind", "code"), [(0, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE), (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE)]
)
async def test_describe_cluster_is_a_brokers_and_not_a_controllers(kind: int, code: ErrorCode) -> None:
    """KIP-919."""
    answer = await ask(await node(), 60, 1, messages(60).DescribeClusterRequest(endpoint_type=kind))
    assert answer.error_code == code


async def test_describe_topic_partitions_goes_page_by_page() -> None:
    """KIP-966: by name, up to the limit, and on from the cursor; every partition exactly once."""
    on = await node("max.request.partition.size.limit=2")
    m = messages(75)
    seen: list[tuple[str, int]] = []
    cursor, pages = None, 0
    while True:
        topics = [m.TopicRequest(name=name) for name in ("b", "a", "gone")]
        request = m.DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=100, cursor=cursor)
        answer = await ask(on, 75, 0, request)
        pages += 1
        assert sum(len(topic.partitions) for topic in answer.topics) <= 2
        for topic in answer.topics:
            if topic.name == "gone":
                assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            seen += [(topic.name, partition.partition_index) for partition in topic.partitions]
        cursor = answer.next_cursor
        if cursor is None:
            break
    assert seen == [("a", 0), ("a", 1), ("a", 2), ("b", 0)]
    assert pages == 3


async def test_describe_topic_partitions_of_everything() -> None:
    on = await node()
    answer = await ask(on, 75, 0, messages(75).DescribeTopicPartitionsRequest())
    assert [topic.name for topic in answer.topics] == ["__consumer_offsets", "__transaction_state", "a", "b"]
    assert [topic.is_internal for topic in answer.topics] == [True, True, False, False]
    assert answer.topics[2].topic_id == on.metadata.topic_id("a")
    assert answer.topics[2].topic_authorized_operations == TOPIC_BITS


@pytest.mark.parametrize(("topic", "partition"), [("a", -1), ("c", 0)])
async def test_describe_topic_partitions_refuses_a_cursor_of_another_request(topic: str, partition: int) -> None:
    m = messages(75)
    request = m.DescribeTopicPartitionsRequest(
        topics=[m.TopicRequest(name="a")], cursor=m.Cursor(topic_name=topic, partition_index=partition)
    )
    answer = await ask(await node(), 75, 0, request)
    assert [entry.error_code for entry in answer.topics] == [ErrorCode.INVALID_REQUEST]
