"""Metadata, topics, features and the cluster at every version of their APIs."""

import pytest

from fencepost.protocol.admin_enums import ConfigSource
from fencepost.protocol.errors import ErrorCode
from tests.unit.metadata.kit import CLUSTER_ID, user_topics
from tests.unit.metadata.wire import CLUSTER_BITS, NOT_ASKED, TOPIC_BITS, ask, messages, node, versions

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
