"""Markers for other cores: one request to each is under way, and the next has all that waits."""

from typing import Any

import pytest
import trio

from fencepost.broker.cores.marker_writer import MarkerWriter
from fencepost.broker.peers.peer import PeerUnavailable
from fencepost.coordinator.ports import Marker
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api27_write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from fencepost.protocol.topics import TopicPartition

A0, B1 = TopicPartition("a", 0), TopicPartition("b", 1)


def marker(producer_id: int) -> Marker:
    return Marker(producer_id, 3, True, 9, 2)


class Links:
    """The other cores: they answer when they are let, and say NONE for each partition."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, list[int]]] = []
        self.go = trio.Semaphore(0)
        self.is_down = False

    async def ask(self, broker: int, request: WriteTxnMarkersRequest, version: int) -> Any:
        self.asked.append((broker, [one.producer_id for one in request.markers]))
        await self.go.acquire()
        if self.is_down:
            raise PeerUnavailable("it is down")
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=one.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(partition_index=number)
                                for number in topic.partition_indexes
                            ],
                        )
                        for topic in one.topics
                    ],
                )
                for one in request.markers
            ]
        )

    def close(self) -> None: ...


@pytest.fixture
def links() -> Links:
    return Links()


@pytest.fixture
def writer(links: Links) -> MarkerWriter:
    return MarkerWriter(links)


@pytest.mark.trio
async def test_what_waits_is_in_the_next_request(writer: MarkerWriter, links: Links, nursery: trio.Nursery) -> None:
    """TransactionMarkerChannelManager: one queue for each broker, drained into one request."""
    answers: dict[int, Any] = {}

    async def write(producer_id: int, partitions: set[TopicPartition]) -> None:
        answers[producer_id] = await writer.write(2, marker(producer_id), partitions)

    for producer_id in (1, 2, 3):
        nursery.start_soon(write, producer_id, {A0, B1})
        await trio.testing.wait_all_tasks_blocked()
    links.go.release()
    await trio.testing.wait_all_tasks_blocked()
    links.go.release()
    await trio.testing.wait_all_tasks_blocked()
    assert links.asked == [(2, [1]), (2, [2, 3])]
    assert answers == {one: {A0: ErrorCode.NONE, B1: ErrorCode.NONE} for one in (1, 2, 3)}


@pytest.mark.trio
async def test_a_core_that_is_down_holds_up_no_other(writer: MarkerWriter, links: Links, nursery: trio.Nursery) -> None:
    nursery.start_soon(writer.write, 2, marker(1), {A0})
    nursery.start_soon(writer.write, 3, marker(2), {A0})
    await trio.testing.wait_all_tasks_blocked()
    assert sorted(links.asked) == [(2, [1]), (3, [2])]


@pytest.mark.trio
async def test_what_could_not_be_asked_is_to_be_tried_again(writer: MarkerWriter, links: Links) -> None:
    """Row T8: a decided transaction's markers are written until each partition has its own."""
    links.is_down = True
    links.go.release()
    assert await writer.write(2, marker(1), {A0}) == {A0: ErrorCode.NETWORK_EXCEPTION}


@pytest.mark.trio
async def test_a_writer_that_is_cancelled_leaves_the_queue_to_others(
    writer: MarkerWriter, links: Links, nursery: trio.Nursery
) -> None:
    """A coordinator that is unloaded ends its tasks, and those of other coordinators go on."""
    with trio.move_on_after(0) as scope:
        scope.cancel()
        await writer.write(2, marker(1), {A0})
    done = []

    async def write() -> None:
        done.append(await writer.write(2, marker(2), {A0}))

    nursery.start_soon(write)
    for _ in range(2):
        await trio.testing.wait_all_tasks_blocked()
        links.go.release()
    await trio.testing.wait_all_tasks_blocked()
    assert done == [{A0: ErrorCode.NONE}]
