"""OffsetDelete: what an operator may have forgotten while a group lives (row G7; KIP-496)."""

import struct

import pytest
import trio
import trio.testing

from fencepost.coordinator.group.deletion import DeletedOffsets
from fencepost.coordinator.ports import ProducerTag
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from fencepost.protocol.topics import TopicPartition
from tests.unit.group.handler_kit import Node
from tests.unit.group.kit import T0, T1, World

U0 = TopicPartition("u", 0)
DONE = ErrorCode.NONE
READ = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
TAG = ProducerTag(7, 0)


def reads(*topics: str) -> bytes:
    """A ConsumerProtocolSubscription."""
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 0, len(topics)) + names + b"\xff\xff\xff\xff"


async def delete(world: World, *partitions: TopicPartition) -> DeletedOffsets:
    return await world.service.positions.delete_offsets("g", partitions)


async def test_an_empty_group_loses_what_is_named_and_nothing_else_g7(world: World) -> None:
    await world.commit(1)
    await world.commit(2, partition=T1)
    assert await delete(world, T0, U0, T0) == DeletedOffsets(DONE, (DONE, DONE, DONE))
    assert (await world.offset(), await world.offset(T1)) == (-1, 2)
    assert world.service.tallies.deleted_offsets == 1
    assert await (await world.restart()).offset() == -1


async def test_a_live_group_keeps_the_topics_it_reads_g7(autojump_clock: object, world: World) -> None:
    [member] = await world.settle(None, protocols=(("range", reads("t")),))
    for partition in (T0, U0):
        await world.commit(5, partition=partition, member_id=member.member_id, generation=member.generation)
    assert await delete(world, T0, U0) == DeletedOffsets(DONE, (READ, DONE))
    assert (await world.offset(), await world.offset(U0)) == (5, -1)


async def test_in_a_rebalance_every_subscription_of_every_member_counts_g7(
    autojump_clock: object, world: World, nursery: trio.Nursery
) -> None:
    """The assignor is not chosen yet, so each list of topics may turn out to be the one."""
    await world.settle(None, protocols=(("range", reads("u")), ("sticky", reads("t"))))
    nursery.start_soon(lambda: world.join(member_id_required=False, protocols=(("range", reads("u")),)))
    await trio.testing.wait_all_tasks_blocked()
    assert world.state() == "PreparingRebalance"
    assert await delete(world, T0, U0, TopicPartition("v", 0)) == DeletedOffsets(DONE, (READ, READ, DONE))
    nursery.cancel_scope.cancel()


async def test_a_subscription_that_can_not_be_read_may_be_to_any_topic_g7(autojump_clock: object, world: World) -> None:
    [member] = await world.settle(None, protocols=(("range", b"?"),))
    await world.commit(5, member_id=member.member_id, generation=member.generation)
    assert await delete(world, T0) == DeletedOffsets(DONE, (READ,))


async def test_only_consumers_say_what_they_read_so_others_must_be_gone_g7(
    autojump_clock: object, world: World
) -> None:
    await world.settle(None, protocol_type="connect")
    assert await delete(world, T0) == DeletedOffsets(ErrorCode.NON_EMPTY_GROUP)


async def test_a_position_under_decision_stays_with_what_it_would_replace_t5(world: World) -> None:
    """Kafka deletes both, and the transaction's outputs stand alone; here the operator is told to come again."""
    await world.commit(1)
    await world.commit(5, producer=TAG)
    assert await delete(world, T0) == DeletedOffsets(DONE, (ErrorCode.UNSTABLE_OFFSET_COMMIT,))
    assert await world.offset() == 1
    world.end_transaction(7, commit=True)
    assert await world.offset() == 5
    assert await delete(world, T0) == DeletedOffsets(DONE, (DONE,))
    assert await world.offset() == -1


async def test_a_group_must_have_a_name_and_be_there_g7(world: World) -> None:
    assert await world.service.positions.delete_offsets("", [T0]) == DeletedOffsets(ErrorCode.INVALID_GROUP_ID)
    assert await delete(world, T0) == DeletedOffsets(ErrorCode.GROUP_ID_NOT_FOUND)
    await world.commit(1, partition=U0)
    assert await world.service.positions.delete_offsets("h", [T0]) == DeletedOffsets(ErrorCode.GROUP_ID_NOT_FOUND)


async def test_a_refused_write_deletes_nothing_g7(world: World) -> None:
    await world.commit(1)
    world.log_of().refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    assert await delete(world, T0) == DeletedOffsets(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert await world.offset() == 1


def request(*names: str) -> object:
    topics = [
        OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
        for name in names
    ]
    return OffsetDeleteRequest(group_id="g", topics=topics)


@pytest.mark.parametrize(
    ("committed", "asked", "error", "codes"),
    [
        (True, ("t",), DONE, [("t", DONE)]),
        (True, ("?", "t"), DONE, [("?", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), ("t", DONE)]),
        (False, ("?",), ErrorCode.GROUP_ID_NOT_FOUND, []),
        (False, (), ErrorCode.GROUP_ID_NOT_FOUND, []),
        (False, ("t",), ErrorCode.GROUP_ID_NOT_FOUND, []),
    ],
)
async def test_the_request_goes_by_topics_g7(
    node: Node, committed: bool, asked: tuple[str, ...], error: ErrorCode, codes: list[tuple[str, ErrorCode]]
) -> None:
    if committed:
        await node.world.commit(5)
    answer = await node.ask(47, 0, request(*asked))
    assert answer.error_code == error
    assert [(topic.name, topic.partitions[0].error_code) for topic in answer.topics] == codes
    assert await node.world.offset() == -1
