"""After its database went back in time, a coordinator goes on with no producer that was there before."""

from collections.abc import Collection

import pytest
import trio
import trio.testing

from fencepost.coordinator.txn.config import TxnConfig
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition
from tests.unit.txn.kit import P0, TX, World, begin, committed, end_txn, write

NONE = ErrorCode.NONE


class Lost:
    """No other broker; the database lost records of every partition."""

    def coordinates(self, transactional_id: str) -> bool:
        return False

    async def ensure(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        add: bool,
    ) -> dict[TopicPartition, ErrorCode]:
        raise AssertionError("no other broker coordinates an id")

    def lost_some(self, partition: int) -> bool:
        return True


async def after_the_loss(world: World, nursery: trio.Nursery) -> None:
    world.others = Lost()
    await world.crash(nursery)
    await trio.testing.wait_all_tasks_blocked()


async def test_a_producer_without_an_open_transaction_is_fenced(
    world: World, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    """What it has begun meanwhile may be lost, which it does not know. A new transaction would hold only the rest."""
    holder = await begin(world)
    assert (await end_txn(world.service, TX, *holder, True, client_version=1)).error is NONE
    await after_the_loss(world, nursery)
    codes = await world.service.ensure_partitions(TX, *holder, [P0], add=True)
    assert codes == {P0: ErrorCode.INVALID_PRODUCER_EPOCH}
    history = world.service.history.of(TX)
    assert history is not None
    assert "the cluster's database lost commits" in history.refusals[-1].cause.text
    assert "producers of 1 transactional ids are fenced" in caplog.text


async def test_an_open_transaction_is_aborted_and_cannot_commit(world: World, nursery: trio.Nursery) -> None:
    holder = await begin(world)
    await after_the_loss(world, nursery)
    assert not world.cluster.partitions[P0].open
    assert (await end_txn(world.service, TX, *holder, True, client_version=2)).error is ErrorCode.PRODUCER_FENCED
    assert committed(world) == []


async def test_a_decided_transaction_is_completed_and_its_successor_begins(world: World, nursery: trio.Nursery) -> None:
    holder = await begin(world)
    world.cluster.gate = trio.Event()
    with trio.move_on_after(0):
        await end_txn(world.service, TX, *holder, True, client_version=2)
    await after_the_loss(world, nursery)
    assert committed(world) == ["x"]
    successor = await world.service.init_producer_id(TX, 60_000)
    await write(world, successor.producer_id, successor.epoch, P0, value="y")
    ended = await end_txn(world.service, TX, successor.producer_id, successor.epoch, True, client_version=2)
    assert ended.error is NONE
    assert committed(world) == ["x", "y"]


async def test_a_transaction_of_a_two_phase_commit_waits_for_its_user(nursery: trio.Nursery) -> None:
    world = World(config=TxnConfig(transaction_two_phase_commit_enable=True))
    await world.start(nursery)
    answer = await world.service.init_producer_id(TX, 60_000, enable_2pc=True)
    await write(world, answer.producer_id, answer.epoch, P0)
    await after_the_loss(world, nursery)
    ended = await end_txn(world.service, TX, answer.producer_id, answer.epoch, True, client_version=2)
    assert ended.error is NONE
    assert committed(world) == ["x"]


async def test_the_next_start_fences_no_producer(world: World, nursery: trio.Nursery) -> None:
    await begin(world)
    await after_the_loss(world, nursery)
    answer = await world.service.init_producer_id(TX, 60_000)
    world.others = None
    await world.crash(nursery)
    codes = await world.service.ensure_partitions(TX, answer.producer_id, answer.epoch, [P0], add=True)
    assert codes == {P0: NONE}
