"""Admin requests go to the broker that answers for their subject, again when that has moved, and to old brokers."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

import fencepost
from fencepost import ErrorCode, KafkaError, TopicPartition
from fencepost.cli.config.text import entries_text
from fencepost.client.admin import ConfigResource, ConfigSource, ItemsFailedError, NewTopic
from fencepost.client.admin.client import parts_of
from fencepost.client.errors import FatalError, RetriableError
from fencepost.protocol.messages.api10_find_coordinator import Coordinator, FindCoordinatorResponse
from fencepost.protocol.messages.api15_describe_groups import DescribedGroup, DescribeGroupsResponse
from fencepost.protocol.messages.api16_list_groups import ListedGroup, ListGroupsResponse
from fencepost.protocol.messages.api19_create_topics import CreatableTopicResult, CreateTopicsResponse
from fencepost.protocol.messages.api20_delete_topics import DeletableTopicResult, DeleteTopicsResponse
from fencepost.protocol.messages.api32_describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from fencepost.protocol.messages.api33_alter_configs import AlterConfigsResourceResponse, AlterConfigsResponse
from fencepost.protocol.messages.api42_delete_groups import DeletableGroupResult, DeleteGroupsResponse
from fencepost.protocol.registry import API_BY_NAME
from tests.kit.answers import OffsetTold, metadata_told, partitions_told
from tests.kit.scripted_broker import HANG_UP, ScriptedBroker

OF_KAFKA_2_1 = {
    "ListOffsets": 4,
    "Metadata": 7,
    "OffsetCommit": 6,
    "OffsetFetch": 5,
    "FindCoordinator": 2,
    "DescribeGroups": 2,
    "ListGroups": 2,
    "ApiVersions": 2,
    "CreateTopics": 3,
    "DeleteTopics": 3,
    "DeleteRecords": 1,
    "DescribeConfigs": 2,
    "AlterConfigs": 1,
    "CreatePartitions": 1,
    "DeleteGroups": 1,
}
"""The highest versions of Apache Kafka 2.1; what is not here it did not know."""


class Node(ScriptedBroker):
    """One of several brokers, which all tell the same of the cluster."""

    def __init__(self, node_id: int, cluster: "Nodes") -> None:
        super().__init__()
        self.node_id = node_id
        self.cluster = cluster

    def nodes(self) -> dict[int, int]:
        return {node.node_id: node.port for node in self.cluster.nodes}

    def on_Metadata(self, request: Any, version: int) -> Any:
        names = [entry.name for entry in request.topics or ()]
        partitions = partitions_told({n: (leader, -1) for n, leader in enumerate(self.cluster.leaders)}, [1, 2])
        topics = dict.fromkeys(names, partitions)
        return metadata_told(self.nodes(), names, topics, controller=self.cluster.controller)

    def on_FindCoordinator(self, request: Any, version: int) -> Any:
        node = self.cluster.nodes[self.cluster.coordinator - 1]
        if version < 4:
            return FindCoordinatorResponse(node_id=node.node_id, host="127.0.0.1", port=node.port)
        found = Coordinator(key=request.coordinator_keys[0], node_id=node.node_id, host="127.0.0.1", port=node.port)
        return FindCoordinatorResponse(coordinators=[found])

    def on_CreateTopics(self, request: Any, version: int) -> Any:
        here = self.node_id == self.cluster.controller
        code = ErrorCode.NONE if here else ErrorCode.NOT_CONTROLLER
        return CreateTopicsResponse(topics=[CreatableTopicResult(name=t.name, error_code=code) for t in request.topics])

    def on_DeleteTopics(self, request: Any, version: int) -> Any:
        return DeleteTopicsResponse(responses=[DeletableTopicResult(name=name) for name in request.topic_names])

    def on_DeleteGroups(self, request: Any, version: int) -> Any:
        here = self.node_id == self.cluster.coordinator
        code = ErrorCode.NONE if here else ErrorCode.NOT_COORDINATOR
        results = [DeletableGroupResult(group_id=group, error_code=code) for group in request.groups_names]
        return DeleteGroupsResponse(results=results)

    def on_DescribeGroups(self, request: Any, version: int) -> Any:
        groups = [DescribedGroup(group_id=one, group_state="Empty", protocol_type="consumer") for one in request.groups]
        return DescribeGroupsResponse(groups=groups)

    def on_ListGroups(self, request: Any, version: int) -> Any:
        return ListGroupsResponse(groups=[ListedGroup(group_id=f"g{self.node_id}", protocol_type="consumer")])

    def offset_at(self, number: int, timestamp: int, isolation: int) -> OffsetTold:
        here = self.cluster.leaders[number] == self.node_id
        return ErrorCode.NONE if here else ErrorCode.NOT_LEADER_OR_FOLLOWER, 100 + number, -1

    def on_DescribeConfigs(self, request: Any, version: int) -> Any:
        settings = [
            ("retention.ms", "5000", 1),
            ("cleanup.policy", "delete", 1),
            ("segment.ms", "9", 5),
            ("new", "1", 42),
        ]
        configs = [DescribeConfigsResourceResult(name=n, value=v, config_source=source) for n, v, source in settings]
        results = [
            DescribeConfigsResult(resource_type=one.resource_type, resource_name=one.resource_name, configs=configs)
            for one in request.resources
        ]
        return DescribeConfigsResponse(results=results)

    def on_AlterConfigs(self, request: Any, version: int) -> Any:
        return AlterConfigsResponse(
            responses=[AlterConfigsResourceResponse(resource_name=request.resources[0].resource_name)]
        )


class Nodes:
    """Two brokers, and who does what among them."""

    def __init__(self) -> None:
        self.controller = self.coordinator = 1
        self.leaders = [1, 2]
        self.nodes = [Node(1, self), Node(2, self)]

    def asked(self, name: str) -> list[tuple[int, Any]]:
        """(node, request) of an API, by node."""
        return [(node.node_id, body) for node in self.nodes for api, _, body in node.requests if api == name]

    def versions(self, name: str) -> set[int]:
        """The versions in which an API was asked."""
        return {version for node in self.nodes for api, version, _ in node.requests if api == name}


@pytest.fixture
async def nodes(nursery: trio.Nursery) -> Nodes:
    """Two brokers that serve."""
    made = Nodes()
    for node in made.nodes:
        await nursery.start(node.serve)
    return made


Ask = Callable[[Callable[[fencepost.Admin], Awaitable[Any]]], Awaitable[Any]]


@pytest.fixture
def ask(nodes: Nodes) -> Ask:
    """Call something with an admin client of the two; it gives up after a minute."""

    async def call(talk: Callable[[fencepost.Admin], Awaitable[Any]]) -> Any:
        client = fencepost.Client(nodes.nodes[0].address, default_api_timeout=60, retry_backoff=0.005)
        async with client as kafka, kafka.admin() as admin:
            with trio.fail_after(100):
                return await talk(admin)

    return call


async def test_a_controller_that_moved_is_found_and_only_what_is_open_is_asked_again(nodes: Nodes, ask: Ask) -> None:
    def moved(request: Any, version: int) -> Any:
        nodes.controller = 2
        codes = [ErrorCode.NONE, ErrorCode.NOT_CONTROLLER, ErrorCode.INVALID_CONFIG]
        results = [CreatableTopicResult(name=t.name, error_code=c) for t, c in zip(request.topics, codes, strict=True)]
        return CreateTopicsResponse(topics=results)

    nodes.nodes[0].scripts["CreateTopics"].append(moved)
    topics = [NewTopic(name, 1, 1) for name in ("a", "b", "c")]
    with pytest.raises(ItemsFailedError) as some:
        await ask(lambda admin: admin.create_topics(topics))
    assert list(some.value.results) == ["a", "b"]
    assert {name: error.code for name, error in some.value.errors.items()} == {"c": ErrorCode.INVALID_CONFIG}
    sent = [(node, [topic.name for topic in request.topics]) for node, request in nodes.asked("CreateTopics")]
    assert sent == [(1, ["a", "b", "c"]), (2, ["b"])]


async def test_a_coordinator_that_moved_is_looked_for(nodes: Nodes, ask: Ask) -> None:
    def moved(request: Any, version: int) -> Any:
        nodes.coordinator = 2
        return Node.on_DeleteGroups(nodes.nodes[0], request, version)

    nodes.nodes[0].scripts["DeleteGroups"].append(moved)
    await ask(lambda admin: admin.delete_groups("g"))
    assert [node for node, _ in nodes.asked("DeleteGroups")] == [1, 2]


async def test_each_leader_is_asked_once_and_one_that_moved_again(nodes: Nodes, ask: Ask) -> None:
    def moved(request: Any, version: int) -> Any:
        nodes.leaders = [2, 2]
        return Node.on_ListOffsets(nodes.nodes[0], request, version)

    nodes.nodes[0].scripts["ListOffsets"].append(moved)
    wanted = [TopicPartition("t", 0), TopicPartition("t", 1)]
    found = await ask(lambda admin: admin.list_offsets(wanted))
    assert [found[partition].offset for partition in wanted] == [100, 101]
    sent = [(node, [p.partition_index for p in r.topics[0].partitions]) for node, r in nodes.asked("ListOffsets")]
    assert sent == [(1, [0]), (2, [1]), (2, [0])]


async def test_an_argument_takes_one_name_or_several(nodes: Nodes, ask: Ask) -> None:
    await ask(lambda admin: admin.delete_groups("g"))
    await ask(lambda admin: admin.delete_groups(name for name in ("g", "h")))
    await ask(lambda admin: admin.delete_groups([]))
    assert [request.groups_names for _, request in nodes.asked("DeleteGroups")] == [["g"], ["g", "h"]]
    here = TopicPartition("t", 0)
    one, several = [await ask(lambda admin, p=p: admin.list_offsets(p)) for p in (here, [("t", 0)])]
    assert one == several == {here: one[here]}
    await ask(lambda admin: admin.create_topics(NewTopic("abc", 1, 1)))
    assert [[topic.name for topic in request.topics] for _, request in nodes.asked("CreateTopics")] == [["abc"]]


async def test_the_source_of_a_setting_has_kafkas_name(ask: Ask) -> None:
    found = await ask(lambda admin: admin.describe_configs(topic="t"))
    assert found["retention.ms"].source is ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert found["segment.ms"].source is ConfigSource.DEFAULT_CONFIG
    assert (found["new"].source, found["new"].source.name) == (42, "SOURCE_42"), "of a newer Kafka"
    assert entries_text(found.values()).splitlines()[-1].split() == ["new", "1", "source", "42"]


async def test_the_settings_of_several_resources_are_one_request_to_each_broker(nodes: Nodes, ask: Ask) -> None:
    resources = [ConfigResource("topic", "a"), ConfigResource("topic", "b"), ConfigResource("broker", "2")]
    found = await ask(lambda admin: parts_of(admin).configs.describe_resources(resources))
    assert list(found) == resources
    assert all(entries["retention.ms"].value == "5000" for entries in found.values())
    sent = [[(one.resource_type, one.resource_name) for one in r.resources] for _, r in nodes.asked("DescribeConfigs")]
    assert sorted(sent) == [[(2, "a"), (2, "b")], [(4, "2")]]


async def test_a_connection_that_ends_is_made_again(
    nodes: Nodes, ask: Ask, autojump_clock: trio.testing.MockClock
) -> None:
    nodes.nodes[0].scripts["DeleteGroups"] += [HANG_UP, HANG_UP]
    await ask(lambda admin: admin.delete_groups(["g", "h"]))
    assert [request.groups_names for _, request in nodes.asked("DeleteGroups")] == [["g", "h"]] * 3


async def test_what_never_comes_right_is_told_at_the_deadline(
    nodes: Nodes, ask: Ask, autojump_clock: trio.testing.MockClock
) -> None:
    def never(request: Any, version: int) -> Any:
        codes = [ErrorCode.NOT_CONTROLLER if topic.name == "b" else ErrorCode.NONE for topic in request.topics]
        results = [CreatableTopicResult(name=t.name, error_code=c) for t, c in zip(request.topics, codes, strict=True)]
        return CreateTopicsResponse(topics=results)

    nodes.nodes[0].scripts["CreateTopics"] = [never] * 1000
    with pytest.raises(ItemsFailedError) as late:
        await ask(lambda admin: admin.create_topics([NewTopic("a", 1, 1), NewTopic("b", 1, 1)]))
    assert list(late.value.results) == ["a"]
    assert isinstance(late.value.errors["b"], RetriableError)
    assert late.value.errors["b"].code is ErrorCode.NOT_CONTROLLER


async def test_a_broker_that_says_nothing_of_an_item_is_not_believed(nodes: Nodes, ask: Ask) -> None:
    nodes.nodes[0].scripts["DeleteGroups"].append(
        DeleteGroupsResponse(results=[DeletableGroupResult(group_id="g", error_code=0)])
    )
    with pytest.raises(ItemsFailedError, match="deleting groups") as some:
        await ask(lambda admin: admin.delete_groups(["g", "h"]))
    assert list(some.value.errors) == ["h"]


async def test_all_brokers_are_asked_for_their_groups(ask: Ask) -> None:
    assert [one.group_id for one in await ask(lambda admin: admin.list_groups())] == ["g1", "g2"]


async def test_kafka_2_1_is_spoken_to_in_its_versions(nodes: Nodes, ask: Ask) -> None:
    for node in nodes.nodes:
        node.highest = {name: OF_KAFKA_2_1.get(name, -1) for name in API_BY_NAME}

    async def talk(admin: fencepost.Admin) -> None:
        await admin.create_topics("a", 1, replication_factor=1)
        with pytest.raises(FatalError, match="CreateTopics") as defaults:
            await admin.create_topics("b")
        assert defaults.value.code is ErrorCode.UNSUPPORTED_VERSION
        await admin.delete_topics(["a"])
        with pytest.raises(FatalError, match="DeleteTopics"):
            await admin.delete_topics(bytes(16))
        assert (await admin.describe_groups("g"))["g"].state == "Empty"
        assert await admin.list_groups() != []
        with pytest.raises(FatalError, match="ListGroups"):
            await admin.list_groups(states="Stable")
        assert (await admin.list_offsets([TopicPartition("t", 1)]))[TopicPartition("t", 1)].offset == 101
        with pytest.raises(FatalError, match="ListOffsets"):
            await admin.list_offsets([TopicPartition("t", 1)], at="max_timestamp")
        assert len((await admin.describe_cluster()).brokers) == 2
        assert (await admin.describe_features()).finalized == {}
        await admin.incremental_alter_configs({"retention.ms": None}, topic="a", append={"cleanup.policy": "compact"})
        for call in (admin.describe_acls, admin.describe_quorum, lambda: admin.list_transactions()):
            with pytest.raises(KafkaError) as unknown:
                await call()
            assert unknown.value.code is ErrorCode.UNSUPPORTED_VERSION

    await ask(talk)
    assert {name: nodes.versions(name) for name in ("CreateTopics", "DeleteTopics", "ListOffsets", "AlterConfigs")} == {
        "CreateTopics": {3},
        "DeleteTopics": {3},
        "ListOffsets": {4},
        "AlterConfigs": {1},
    }
    [(_, written)] = nodes.asked("AlterConfigs")
    kept = {entry.name: entry.value for entry in written.resources[0].configs}
    assert kept == {"cleanup.policy": "delete,compact"}, "the topic's own settings, without what was a default"
