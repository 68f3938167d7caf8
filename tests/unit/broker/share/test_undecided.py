"""Transactions of share partitions whose state another broker keeps: what is stored, and how their end is learnt."""

from collections.abc import AsyncIterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from fencepost.broker.share.change import Change
from fencepost.broker.share.led import LedPartition, Storing
from fencepost.broker.share.undecided import LOOK_SECONDS, UndecidedPartitions
from fencepost.broker.share.values import AckBatch, AckType, AcquireMode, Fetched, Limits, Want
from fencepost.coordinator.ports import ProducerTag
from fencepost.coordinator.share.values import DeliveryState, Outcome, ShareKey, StateBatch, StateUpdate, StoredState
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition

KEY, TAG = ShareKey("g", bytes(range(16)), 0), ProducerTag(7, 3)
PENDING = StoredState(state_epoch=1, batches=(StateBatch(0, 9, DeliveryState.TX_PENDING, 1),))
COMMITTED = StoredState(state_epoch=1, batches=(StateBatch(0, 9, DeliveryState.ACKNOWLEDGED, 1),))


class World:
    """A share partition of this broker, of which member a holds 0 to 9, and the broker that keeps its state."""

    def __init__(self, nursery: trio.Nursery) -> None:
        log: Any = SimpleNamespace(leader_epoch=5, watchers={})
        self.led = LedPartition(KEY, TopicPartition("t", 0), log, Limits)
        self.led.core.restore(StoredState(state_epoch=1, start_offset=0), 0)
        self.led.core.acquire("a", Fetched(0, ((0, 9),), ()), Want(500, 500, AcquireMode.BATCH_OPTIMIZED), 0)
        self.outcome, self.stored = Outcome(), PENDING
        self.reads = 0
        self.gate = trio.Event()
        self.gate.set()
        self.it = UndecidedPartitions(
            self, lambda task, led: nursery.start_soon(task, led), self.store, self.drop, lambda led: None
        )

    async def read(self, key: ShareKey, leader_epoch: int) -> StoredState:
        assert (key, leader_epoch) == (KEY, 5)
        self.reads += 1
        return self.stored

    async def write_in(
        self, transactional_id: str, producer: ProducerTag, updates: Mapping[ShareKey, StateUpdate]
    ) -> Mapping[ShareKey, Outcome]:
        assert (transactional_id, producer) == ("txn", TAG)
        await self.gate.wait()
        return dict.fromkeys(updates, self.outcome)

    def store(self, led: LedPartition, change: Change) -> Storing:
        change.settle(True)
        return Storing(change)

    def drop(self, led: LedPartition, error: ErrorCode) -> None:
        led.error = error

    async def accept(self) -> ErrorCode:
        change = self.led.core.acknowledge_in("a", [AckBatch(0, 9, [AckType.ACCEPT])], TAG.producer_id)
        [error] = await self.it.store("txn", TAG, [(self.led, change)])
        return error

    def is_held(self) -> bool:
        """Whether the member still can say what becomes of the records."""
        return bool(self.led.core.acknowledge("a", [AckBatch(0, 9, [AckType.ACCEPT])], 0))


@pytest.fixture
async def world(autojump_clock: trio.abc.Clock) -> AsyncIterator[World]:
    async with trio.open_nursery() as nursery:
        yield World(nursery)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("commit", [True, False])
async def test_the_leader_reads_the_state_until_the_marker_has_decided(world: World, commit: bool) -> None:
    """No message of another broker is needed, so none can be lost."""
    assert await world.accept() is ErrorCode.NONE
    await trio.sleep(10 * LOOK_SECONDS)
    assert world.led.core.start_offset == 0
    assert world.reads >= 9
    world.stored = StoredState(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    await trio.sleep(2 * LOOK_SECONDS)
    world.stored = COMMITTED if commit else StoredState(state_epoch=1)
    await trio.sleep(2 * LOOK_SECONDS)
    assert (world.led.core.start_offset, world.led.core.next_fetch_offset()) == ((10, 10) if commit else (0, 0))
    reads = world.reads
    await trio.sleep(2 * LOOK_SECONDS)
    assert (world.reads, world.led.watched) == (reads, False)


@pytest.mark.parametrize("error", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.CONCURRENT_TRANSACTIONS])
async def test_what_is_refused_is_with_its_member(world: World, error: ErrorCode) -> None:
    """As P4, T17: nothing was stored."""
    world.outcome = Outcome(error)
    assert await world.accept() is error
    assert not world.led.error
    assert world.is_held()


@pytest.mark.parametrize("error", [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.FENCED_LEADER_EPOCH])
async def test_what_may_be_stored_begins_anew(world: World, error: ErrorCode) -> None:
    """The state says whether it is. The client got an error, so it aborts."""
    world.outcome = Outcome(error)
    assert await world.accept() is error
    assert world.led.error


async def test_a_client_that_goes_while_it_is_stored(world: World) -> None:
    """Its connection's task is cancelled: it is not known what was stored."""
    world.gate = trio.Event()
    with trio.move_on_after(1):
        await world.accept()
    assert world.led.error is ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("stored", [StoredState(ErrorCode.FENCED_LEADER_EPOCH), COMMITTED._replace(state_epoch=2)])
async def test_a_leader_that_is_fenced_looks_no_more(world: World, stored: StoredState) -> None:
    """Another broker leads, or the group's offsets were reset."""
    await world.accept()
    world.stored = stored
    await trio.sleep(2 * LOOK_SECONDS)
    assert world.led.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
