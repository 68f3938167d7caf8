"""The node behind a cluster under test: it answers at each address as the broker there would."""

import copy
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Any

from fencepost.broker.config.broker_config import BrokerConfig
from fencepost.broker.log.storage.store import Store
from fencepost.broker.network.context import CloseConnection, RequestContext
from fencepost.broker.network.dispatch import Handler
from fencepost.broker.network.reply import Durable, Encoded, Ready, ready
from fencepost.broker.ports import Broker
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api00_produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from fencepost.protocol.messages.api03_metadata import MetadataResponseBroker
from fencepost.protocol.messages.api60_describe_cluster import DescribeClusterBroker
from fencepost.protocol.registry import API_BY_KEY
from fencepost.protocol.topics import GROUP_TOPIC, TRANSACTION_TOPIC, TopicPartition
from fencepost.testing.faults import Faults
from fencepost.testing.faulty_node import FaultyNode, response_of
from fencepost.testing.journal import Journal
from fencepost.testing.jumping_clock import JumpingClock
from fencepost.testing.leaders import Leaders
from fencepost.testing.refusals import HARMLESS, overwrite, refusal

GROUP, TRANSACTION = 0, 1
"""Kinds of keys that have a coordinator, as FindCoordinator numbers them."""


def listener_of(node: int) -> str:
    """The name of the listener behind a broker's address."""
    return f"BROKER{node}"


class ClusterNode(FaultyNode):
    """One node that clients see as several: the listener of a request says which of them it asked."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: JumpingClock,
        store: Store,
        faults: Faults,
        journal: Journal,
        *,
        leaders: Leaders,
    ) -> None:
        self.leaders = leaders
        super().__init__(config, clock, store, faults, journal)

    def wrapped(self, api_key: int, handle: Handler) -> Handler:
        """The handler of an API, with what depends on the broker that was asked."""
        answer = _ANSWERS.get(api_key)
        return handle if answer is None else partial(self._answer, answer, handle)

    def coordinator_partition(self, kind: int, key: str) -> tuple[str, int]:
        """The internal partition whose leader coordinates a group or a transactional id."""
        if kind == GROUP:
            return GROUP_TOPIC, self.groups.group_partition(key)
        return TRANSACTION_TOPIC, self.transactions.runtime.partition_for(key)

    def coordinator(self, kind: int, key: str) -> int:
        return self.leaders.leader(*self.coordinator_partition(kind, key))[0]

    def name_of(self, topic: Any) -> str | None:
        """The name of a topic in a request or response, which may have its id only; None for an unknown id."""
        name: str | None = getattr(topic, "name", None) or getattr(topic, "topic", None)
        found = self.metadata.image.topics_by_id.get(getattr(topic, "topic_id", b""))
        return name or (found.name if found is not None else None)

    def leads(self, at: int, topic: Any, partition: int) -> bool:
        """Whether broker `at` leads a partition; also for unknown ones, about which the handler has its own answer.

        The log gets the epoch of its leader, which a move has changed in the table only.
        """
        name = self.name_of(topic)
        log = self.partition(TopicPartition(name, partition)) if name is not None else None
        if name is None or log is None:
            return True
        leader, epoch = self.leaders.leader(name, partition)
        log.leader_epoch = max(log.leader_epoch, epoch)
        return leader == at

    async def _answer(
        self, answer: "_Answer", handle: Handler, node: Broker, request: Any, context: RequestContext
    ) -> Ready:
        at = int(context.session.listener_name.removeprefix(listener_of(0)[:-1]))
        return await answer(self, at, _Asked(handle, request, context))


class _Asked:
    """A request and its handler."""

    def __init__(self, handle: Handler, request: Any, context: RequestContext) -> None:
        self.handle = handle
        self.request = request
        self.context = context
        self.api = API_BY_KEY[context.api_key]

    async def response(self, node: ClusterNode) -> Any:
        """The handler's answer, as a value."""
        reply = await ready(self.handle(node, self.request, self.context))
        return response_of(self.api, reply, self.context.api_version)


_Answer = Callable[[ClusterNode, int, _Asked], Awaitable[Ready]]


async def _describe(node: ClusterNode, at: int, asked: _Asked) -> Ready:
    """Metadata, DescribeCluster, DescribeTopicPartitions: the brokers, and the leaders of the partitions."""
    response = await asked.response(node)
    leaders = node.leaders
    addresses = {one: leaders.addresses[one] for one in leaders.living}
    if asked.api.key == ApiKey.METADATA:
        response.brokers = [MetadataResponseBroker(node_id=one, host=h, port=p) for one, (h, p) in addresses.items()]
        response.controller_id = leaders.controller
    elif asked.api.key == ApiKey.DESCRIBE_CLUSTER and not response.error_code:
        response.brokers = [DescribeClusterBroker(broker_id=one, host=h, port=p) for one, (h, p) in addresses.items()]
        response.controller_id = leaders.controller
    for topic in getattr(response, "topics", ()):
        for part in topic.partitions:
            part.leader_id, part.leader_epoch = leaders.leader(topic.name, part.partition_index)
            part.replica_nodes, part.isr_nodes = list(leaders.addresses), leaders.living
    answer: Ready = response
    return answer


async def _find_coordinator(node: ClusterNode, at: int, asked: _Asked) -> Ready:
    response = await asked.response(node)
    for one in response.coordinators or [response]:
        if not one.error_code:
            key = one.key if response.coordinators else asked.request.key
            one.node_id = node.coordinator(asked.request.key_type, key)
            one.host, one.port = node.leaders.addresses[one.node_id]
    answer: Ready = response
    return answer


async def _list(node: ClusterNode, at: int, asked: _Asked) -> Ready:
    """ListGroups and ListTransactions: each broker has its own ones."""
    response = await asked.response(node)
    if asked.api.key == ApiKey.LIST_GROUPS:
        response.groups = [one for one in response.groups if node.coordinator(GROUP, one.group_id) == at]
    else:
        states = response.transaction_states
        response.transaction_states = [s for s in states if node.coordinator(TRANSACTION, s.transactional_id) == at]
    answer: Ready = response
    return answer


async def _coordinate(node: ClusterNode, at: int, asked: _Asked) -> Ready:
    """Requests for the coordinator of a group or transactional id: another broker is not the coordinator."""
    if all(node.coordinator(kind, key) == at for kind, key in _keys(asked)):
        return await ready(asked.handle(node, asked.request, asked.context))
    version, code = asked.context.api_version, ErrorCode.NOT_COORDINATOR
    if asked.api.name in HARMLESS:
        answer: Ready = overwrite(asked.api, await asked.response(node), code)
    else:
        answer = refusal(asked.api, asked.request, version, code)
    return answer


def _keys(asked: _Asked) -> Iterator[tuple[int, str]]:
    """The groups or transactional ids that a request is about."""
    request = asked.request
    if asked.api.key in _OF_TRANSACTIONS:
        if key := getattr(request, "transactional_id", None) or getattr(request, "v3_and_below_transactional_id", ""):
            yield TRANSACTION, key
        yield from ((TRANSACTION, one.transactional_id) for one in getattr(request, "transactions", ()))
    else:
        if request.group_id:
            yield GROUP, request.group_id
        yield from ((GROUP, one.group_id) for one in getattr(request, "groups", ()))


async def _read(node: ClusterNode, at: int, asked: _Asked) -> Ready:
    """Fetch, ListOffsets, OffsetForLeaderEpoch: for a partition that the broker does not lead, it has no data."""
    parts = [(topic, part) for topic in asked.request.topics for part in topic.partitions]
    if asked.api.key == ApiKey.FETCH and not all(node.leads(at, topic, part.partition) for topic, part in parts):
        asked.request.max_wait_ms = 0
    response = await asked.response(node)
    for topic in response.responses if asked.api.key == ApiKey.FETCH else response.topics:
        for part in topic.partitions:
            index = getattr(part, "partition_index", None)
            if not node.leads(at, topic, part.partition if index is None else index):
                overwrite(asked.api, part, ErrorCode.NOT_LEADER_OR_FOLLOWER)
                part.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    answer: Ready = response
    return answer


async def _produce(node: ClusterNode, at: int, asked: _Asked) -> Ready:
    """Append to what the broker leads. The rest gets NOT_LEADER_OR_FOLLOWER, and the leader's address (KIP-951)."""
    request: ProduceRequest = asked.request
    kept: list[TopicProduceData] = []
    refused: list[TopicProduceResponse] = []
    for topic in request.topic_data:
        led = [part for part in topic.partition_data if node.leads(at, topic, part.index)]
        if led:
            kept.append(TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=led))
        name = node.name_of(topic) or ""
        parts = [_refused(node, name, part.index) for part in topic.partition_data if part not in led]
        if parts:
            refused.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=parts))
    if not refused:
        return await ready(asked.handle(node, request, asked.context))
    reply: Ready = ProduceResponse()
    if kept:
        asked.request = copy.copy(request)  # the connection may keep the original for a request that repeats it
        asked.request.topic_data = kept
        reply = await ready(asked.handle(node, asked.request, asked.context))
    if request.acks == 0:
        raise CloseConnection(f"broker {at} does not lead what a Produce with acks=0 writes to")
    return _with_refused(node, asked, reply, refused)


def _refused(node: ClusterNode, topic: str, index: int) -> PartitionProduceResponse:
    leader, epoch = node.leaders.leader(topic, index)
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    said = PartitionProduceResponse(index=index, error_code=code, base_offset=-1)
    said.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
    return said


def _with_refused(node: ClusterNode, asked: _Asked, reply: Ready, refused: list[TopicProduceResponse]) -> Ready:
    response: Any = response_of(asked.api, reply, asked.context.api_version)
    response.responses = [*response.responses, *refused]
    response.node_endpoints = [
        NodeEndpoint(node_id=one, host=host, port=port, rack=None)
        for one in node.leaders.living
        for host, port in [node.leaders.addresses[one]]
    ]
    if not isinstance(reply, Durable):
        answer: Ready = response
        return answer
    if isinstance(reply.response, Encoded):
        reply.response = response
    return reply


_OF_TRANSACTIONS = (ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN)
_OF_GROUPS = (
    ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.JOIN_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP,
    ApiKey.SYNC_GROUP, ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.TXN_OFFSET_COMMIT,
)  # fmt: skip
_ANSWERS: Mapping[int, _Answer] = {
    **dict.fromkeys((ApiKey.METADATA, ApiKey.DESCRIBE_CLUSTER, ApiKey.DESCRIBE_TOPIC_PARTITIONS), _describe),
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    **dict.fromkeys((ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS), _list),
    ApiKey.PRODUCE: _produce,
    **dict.fromkeys((ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH), _read),
    **dict.fromkeys((*_OF_TRANSACTIONS, *_OF_GROUPS), _coordinate),
}
