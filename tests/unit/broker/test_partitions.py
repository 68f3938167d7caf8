"""Partitions that are ours, opening, or led by another broker, as clients see them (KIP-951, section A.3)."""

from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from fencepost.broker.config.broker_config import load_config
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.producer_state import AppendOrigin
from fencepost.broker.network.context import Endpoint
from fencepost.broker.node import Node
from fencepost.broker.peers.following import leave_to_others
from fencepost.broker.peers.peer import Peer
from fencepost.broker.place import LeaderAndEpoch
from fencepost.coordinator.metadata.controller import NewTopic
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.messages.api01_fetch import FetchPartition, FetchRequest, FetchTopic
from fencepost.protocol.messages.api02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from fencepost.protocol.topics import GROUP_TOPIC, TopicPartition
from tests.kit.late_log_store import LateLogStore
from tests.unit.broker.txn_node import TxnNode
from tests.unit.log.kit import NOW_MS, batch, late_log

T0 = TopicPartition("t", 0)
OTHER = Peer(7, "b", {"PLAINTEXT": Endpoint("other", 9093)})
LATEST = -1


@pytest.fixture
async def node(nursery: trio.Nursery) -> Node:
    """A broker in memory with the topic t."""
    node = Node(load_config(flags={"storage": "memory", "listeners": "PLAINTEXT://127.0.0.1:0"}))
    await nursery.start(node.run)
    await node.metadata.create_topics([NewTopic("t", 1)])
    return node


def move_away(node: Node) -> None:
    """As when a slot moves: another broker leads the partition, and its log is closed here."""
    node.place.peers = {7: OTHER}
    node.place.leads_partition = lambda *_: False
    node.place.leader = lambda *_: LeaderAndEpoch(7, 5)
    node.partitions.hide(T0)
    node.logs.release(T0, "broker 7 leads it")


async def produced(node: Node, acks: int = -1) -> Any:
    part = PartitionProduceData(index=0, records=bytes(batch()))
    topics = [TopicProduceData(name="t", partition_data=[part])]
    return await TxnNode(node).ask(0, 11, ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics))


async def fetched(node: Node, offset: int, wait_ms: int = 0, version: int = 17) -> Any:
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topic_id = node.metadata.image.topics_by_name["t"].topic_id
    asked = FetchTopic(topic="t", topic_id=topic_id, partitions=[part])
    request = FetchRequest(max_wait_ms=wait_ms, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=[asked])
    return await TxnNode(node).ask(1, version, request)


async def listed(node: Node, timestamp: int = LATEST) -> Any:
    asked = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)])
    answer = await TxnNode(node).ask(2, 7, ListOffsetsRequest(topics=[asked]))
    return answer.topics[0].partitions[0]


async def test_a_foreign_partition_is_refused_with_its_leader_and_where_he_is(node: Node) -> None:
    await produced(node)
    move_away(node)
    answer = await produced(node)
    part = answer.responses[0].partition_responses[0]
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (7, 5)
    assert [(at.node_id, at.host, at.port, at.rack) for at in answer.node_endpoints] == [(7, "other", 9093, "b")]
    answer = await fetched(node, 0)
    part = answer.responses[0].partitions[0]
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (7, 5)
    assert [(at.node_id, at.host, at.port, at.rack) for at in answer.node_endpoints] == [(7, "other", 9093, "b")]
    assert (await listed(node)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_leader_of_two_partitions_is_named_once_though_their_epochs_differ(node: Node) -> None:
    """KIP-951: node_endpoints has one entry for each broker."""
    await node.metadata.create_topics([NewTopic("both", 2)])
    node.place.peers = {7: OTHER}
    node.place.leads_partition = lambda *_: False
    node.place.leader = lambda _topic_id, partition: LeaderAndEpoch(7, 5 + partition)
    parts = [PartitionProduceData(index=index, records=bytes(batch())) for index in range(2)]
    request = ProduceRequest(topic_data=[TopicProduceData(name="both", partition_data=parts)], acks=-1, timeout_ms=1000)
    answer = await TxnNode(node).ask(0, 11, request)
    refused = answer.responses[0].partition_responses
    assert [part.current_leader.leader_epoch for part in refused] == [5, 6]
    assert [at.node_id for at in answer.node_endpoints] == [7]


async def test_a_partition_whose_log_nobody_has_asked_for_yet_is_given_up_as_well(node: Node) -> None:
    """Housekeeping opens logs, too."""
    topic_id = node.metadata.image.topics_by_name["t"].topic_id
    log = node.logs.create(T0, topic_id, node.metadata.log_config("t"))
    assert T0 not in dict(node.partitions.owned())
    move_away(node)
    assert log.disowned
    assert node.logs.opened(T0) is None


@pytest.mark.parametrize("leader", [None, 1])
async def test_a_partition_without_a_leader_elsewhere_is_refused_and_names_none(node: Node, leader: int | None) -> None:
    """As in Kafka before a new leader has taken over: the client asks for the metadata and tries again."""
    await produced(node)
    node.place.leads_partition = lambda *_: False
    node.place.leader = lambda *_: LeaderAndEpoch(leader, 5)
    node.partitions.hide(T0)
    answer = await produced(node)
    part = answer.responses[0].partition_responses[0]
    assert (part.error_code, part.current_leader) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, None)
    assert not answer.node_endpoints
    assert (await listed(node)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    del node.place.leads_partition
    assert (await listed(node)).offset == 1
    assert (await produced(node)).responses[0].partition_responses[0].base_offset == 1


async def test_a_parked_fetch_hears_at_once_that_the_partition_is_given_up(
    node: Node, autojump_clock: trio.testing.MockClock
) -> None:
    began = trio.current_time()
    answers: list[Any] = []

    async def fetch() -> None:
        answers.append(await fetched(node, 0, wait_ms=500_000))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(fetch)
        await wait_all_tasks_blocked()
        move_away(node)
    part = answers[0].responses[0].partitions[0]
    assert (part.error_code, part.current_leader.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 7)
    assert trio.current_time() - began < 1


# A partition of a store that binds offsets late


@pytest.fixture
def late(node: Node) -> PartitionLog:
    """The partition t-0 over such a store."""
    log = node.partitions._owned[T0] = late_log(LateLogStore(node.logs.store))
    return log


@pytest.mark.parametrize("acks", [1, -1])
async def test_no_acknowledgement_names_an_offset_before_it_is_bound(node: Node, late: PartitionLog, acks: int) -> None:
    """acks=1 waits, too. Another broker's marker comes first, and the offset is the one behind it."""
    from fencepost.protocol.control_records import end_txn_marker

    late.segments.rows.write(end_txn_marker(9, 0, False, 0, NOW_MS), late.config)
    part = (await produced(node, acks)).responses[0].partition_responses[0]
    assert (part.error_code, part.base_offset) == (ErrorCode.NONE, 1)
    assert (await listed(node)).offset == 2


async def test_a_write_to_a_log_that_is_given_up_before_it_is_bound_is_refused(
    node: Node, late: PartitionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its flush round takes nothing any more, and the producer learns where to go."""
    ticket = late.append(batch(), AppendOrigin.CLIENT, NOW_MS)
    move_away(node)
    late.disown("broker 7 leads it")
    await node.flusher.wait(ticket)
    assert (ticket.error, ticket.base_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


async def test_a_fetch_waits_for_bytes_that_are_on_their_way(
    node: Node, late: PartitionLog, autojump_clock: trio.testing.MockClock
) -> None:
    await produced(node)
    late.segments.absent = range(1)
    began = trio.current_time()
    assert (await fetched(node, 0)).responses[0].partitions[0].records == b"", "without a wait there is nothing"
    answers: list[Any] = []

    async def fetch() -> None:
        answers.append(await fetched(node, 0, wait_ms=60_000))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(fetch)
        await trio.sleep(5)
        assert not answers
        late.segments.fetch_absent()
    assert len(answers[0].responses[0].partitions[0].records) == len(batch())
    assert trio.current_time() - began < 6


async def test_a_lookup_by_time_waits_for_bytes_that_are_on_their_way(
    node: Node, late: PartitionLog, autojump_clock: trio.testing.MockClock
) -> None:
    await produced(node)
    late.segments.absent = range(1)
    async with trio.open_nursery() as nursery:
        answers: list[Any] = []

        async def look() -> None:
            answers.append(await listed(node, timestamp=NOW_MS))

        nursery.start_soon(look)
        await trio.sleep(5)
        assert not answers
        late.segments.fetch_absent()
    assert (answers[0].error_code, answers[0].offset) == (ErrorCode.NONE, 0)
    late.segments.absent = range(1)
    assert (await listed(node, timestamp=NOW_MS)).error_code == ErrorCode.REQUEST_TIMED_OUT


async def test_no_log_is_begun_for_a_partition_under_way(node: Node) -> None:
    """Another broker has its records: NOT_LEADER_OR_FOLLOWER, and NOT_COORDINATOR for what an internal one holds."""
    await node.metadata.create_topics([NewTopic(GROUP_TOPIC, 50)])
    coordinated = TopicPartition(GROUP_TOPIC, node.groups.runtime.partition_for("g"))
    node.partitions.moving |= {T0, coordinated}
    assert (await listed(node)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    leave_to_others(node, GROUP_TOPIC)
    assert node.groups.runtime.refusal("g") is ErrorCode.NOT_COORDINATOR
    for tp in (T0, coordinated):
        with pytest.raises(OSError, match="moves to another broker"):
            node.partitions.open(tp)
        assert node.logs.opened(tp) is None
    node.partitions.moving.clear()
    assert (await listed(node)).offset == 0
