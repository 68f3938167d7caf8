"""A partition of `__transaction_state` that goes to another broker and comes back while the process lives."""

import pytest
import trio
import trio.testing

from fencepost.protocol.errors import ErrorCode
from tests.unit.txn.kit import P0, P1, TX, World, begin, committed, end_txn, write

NOT_COORDINATOR, LOADING, NONE = ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE


def unload(world: World) -> int:
    partition = world.service.runtime.partition_for(TX)
    world.service.runtime.unload(partition)
    return partition


async def test_an_unloaded_shard_answers_not_coordinator_and_comes_back_as_it_was(
    nursery: trio.Nursery, world: World
) -> None:
    """Rows T1, T13."""
    identity = await begin(world, P0)
    partition = unload(world)
    assert (await end_txn(world.service, TX, *identity, True, client_version=2)).error is NOT_COORDINATOR
    assert (await world.service.describe(TX)).error is NOT_COORDINATOR
    assert not world.service.is_ongoing_with(TX, *identity, {P0})
    assert len(world.service.ids) == 0, "its memory is freed"
    await world.service.runtime.load(partition)
    await write(world, *identity, P1)
    assert (await end_txn(world.service, TX, *identity, True, client_version=2)).error is NONE
    assert committed(world, P0) == committed(world, P1) == ["x"]


async def test_requests_that_wait_for_markers_are_answered_at_the_unload(nursery: trio.Nursery, world: World) -> None:
    """Row T7: reads after the answer to EndTxn see the outcome (decision 0005), so the client has to repeat it."""
    identity = await begin(world, P0)
    world.cluster.gate = trio.Event()
    answers: dict[str, ErrorCode] = {}

    async def end() -> None:
        answers["end"] = (await end_txn(world.service, TX, *identity, True, client_version=2)).error

    async def init() -> None:
        answers["init"] = (await world.service.init_producer_id(TX, 60_000)).error

    nursery.start_soon(end)
    await trio.testing.wait_all_tasks_blocked()
    nursery.start_soon(init)
    await trio.testing.wait_all_tasks_blocked()
    assert (answers, world.service.completing) == ({}, 1)
    partition = unload(world)
    await trio.testing.wait_all_tasks_blocked()
    assert answers == {"end": NOT_COORDINATOR, "init": NOT_COORDINATOR}
    assert world.service.completing == 0, "its markers are the business of the next coordinator"
    rounds = len(world.cluster.rounds)
    world.cluster.gate.set()
    world.cluster.gate = None
    await trio.testing.wait_all_tasks_blocked()
    assert committed(world, P0) == []
    await world.service.runtime.load(partition)
    await trio.testing.wait_all_tasks_blocked()
    assert len(world.cluster.rounds) == rounds + 1
    assert (await end_txn(world.service, TX, *identity, True, client_version=2)).error is NONE
    assert committed(world, P0) == ["x"]


async def test_an_end_waits_for_the_markers_of_the_next_load(nursery: trio.Nursery, world: World) -> None:
    """Row T7, decision 0005: the partition of the coordinator began to move, and stays."""
    identity = await begin(world, P0)
    world.cluster.gate = trio.Event()
    answers: list[ErrorCode] = []

    async def end() -> None:
        answers.append((await end_txn(world.service, TX, *identity, True, client_version=2)).error)

    nursery.start_soon(end)
    await trio.testing.wait_all_tasks_blocked()
    await world.service.runtime.load(unload(world))
    await trio.testing.wait_all_tasks_blocked()
    assert (answers, committed(world, P0)) == ([], [])
    world.cluster.gate.set()
    await trio.testing.wait_all_tasks_blocked()
    assert (answers, committed(world, P0)) == ([NONE], ["x"])


async def test_no_transaction_times_out_where_its_shard_is_not_owned(
    nursery: trio.Nursery, world: World, autojump_clock: trio.testing.MockClock
) -> None:
    """Row T10: the timers go with the shard, and come back with it."""
    answer = await world.service.init_producer_id(TX, 2_000)
    await write(world, answer.producer_id, answer.epoch, P0)
    partition = unload(world)
    await trio.sleep(10)
    assert world.cluster.rounds == []
    await world.service.runtime.load(partition)
    await trio.sleep(1)
    assert world.service.ids.counts["CompleteAbort"] == 1


async def test_a_request_while_the_shard_loads_is_told_so(
    nursery: trio.Nursery, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row T13."""
    identity = await begin(world, P0)
    partition = unload(world)
    monkeypatch.setattr("fencepost.coordinator.runtime.runtime.BATCHES_AT_ONCE", 1)
    async with trio.open_nursery() as loading:
        loading.start_soon(world.service.runtime.load, partition)
        while world.service.runtime.refusal(TX) is NOT_COORDINATOR:
            await trio.lowlevel.checkpoint()
        assert (await end_txn(world.service, TX, *identity, True, client_version=2)).error is LOADING
    assert (await end_txn(world.service, TX, *identity, True, client_version=2)).error is NONE


async def test_what_has_its_markers_is_complete_in_the_log_before_the_shard_goes(
    nursery: trio.Nursery, world: World
) -> None:
    """Row T7: the Complete record is noted, and written up at the unload."""
    world.cluster.at_once = True
    identity = await begin(world, P0)
    assert (await end_txn(world.service, TX, *identity, True, client_version=2)).error is NONE
    partition = unload(world)
    await world.service.runtime.load(partition)
    assert world.service.ids.state_of(TX).name == "CompleteCommit"
    assert len(world.cluster.rounds) == 1, "no marker comes twice"
