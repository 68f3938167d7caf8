"""After a crash: a marker may be there without its decision, which is then decided again (T13, decision 0080)."""

import pytest
import trio
import trio.testing

from fencepost.coordinator.ports import HowEnded
from fencepost.coordinator.txn.listing import Filters
from fencepost.protocol.errors import ErrorCode
from tests.unit.txn.kit import P0, P1, TX, World, begin, committed, end_txn, write

NONE, LOADING = ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def ending(world: World, identity: tuple[int, int], *, commit: bool = True) -> None:
    with world.connection():
        await end_txn(world.service, TX, *identity, commit, client_version=2)


async def cut_in_the_round(world: World, nursery: trio.Nursery, *, commit: bool = True) -> tuple[int, int]:
    """Cut the power when the first partition has its marker, and the second and the coordinator have nothing."""
    world.cluster.joins = True
    identity = await begin(world, P0, P1)
    log = world.logs.logs[world.service.runtime.partition_for(TX)]
    log.hold()
    nursery.start_soon(lambda: ending(world, identity, commit=commit))
    await trio.testing.wait_all_tasks_blocked()
    assert (committed(world, P0), committed(world, P1)) == (["x"] if commit else [], [])
    await world.crash(nursery)
    return identity


@pytest.mark.parametrize("commit", [True, False])
async def test_one_marker_decides_for_all_partitions(
    world: World, commit: bool, autojump_clock: trio.testing.MockClock
) -> None:
    async with trio.open_nursery() as nursery:
        identity = await cut_in_the_round(world, nursery, commit=commit)
        await trio.sleep(1)
        assert world.service.ids.counts["CompleteCommit" if commit else "CompleteAbort"] == 1
        assert committed(world, P0) == committed(world, P1) == (["x"] if commit else [])
        assert not world.cluster.partitions[P1].open
        again = await end_txn(world.service, TX, *identity, commit, client_version=2)
        assert (again.error, again.epoch) == (NONE, identity[1] + 1)
        otherwise = await end_txn(world.service, TX, *identity, not commit, client_version=2)
        assert otherwise.error is not NONE
        nursery.cancel_scope.cancel()


async def test_an_id_in_doubt_is_not_served_until_its_partitions_can_be_read(
    world: World, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither its client nor a newcomer nor the clock may end what a partition may know to be committed."""
    async with trio.open_nursery() as nursery:
        told, found = world.cluster.how_ended, [HowEnded.UNKNOWN]
        world.cluster.how_ended = lambda *asked: found[0]  # type: ignore[method-assign]
        identity = await cut_in_the_round(world, nursery)
        service = world.service
        assert (await end_txn(service, TX, *identity, False, client_version=2)).error is LOADING
        assert (await service.init_producer_id(TX, 60_000)).error is LOADING
        assert not service.is_ongoing_with(TX, *identity, [P0])
        codes = await service.ensure_partitions(TX, *identity, [P0], add=True)
        assert set(codes.values()) == {ErrorCode.NOT_ENOUGH_REPLICAS}
        await trio.sleep(120)
        assert service.ids.counts["Ongoing"] == 1, "its timeout of a minute does not end it"
        assert caplog.text.count("1 open transactions wait for logs that cannot be read") == 1
        assert [line.state for line in (await service.list_transactions(Filters())).transactions] == ["Ongoing"]
        assert service.ids.owned() == {(identity[0], P0), (identity[0], P1)}
        found[0] = told(identity[0], identity[1] + 1, [P0])
        service.look_for_markers()
        await trio.sleep(1)
        assert service.ids.counts["CompleteCommit"] == 1
        assert committed(world, P0) == committed(world, P1) == ["x"]
        nursery.cancel_scope.cancel()


async def test_one_that_is_clear_after_a_while_times_out(world: World, autojump_clock: trio.testing.MockClock) -> None:
    """Once the last partition can be read and has no marker, it is an open transaction as any other."""
    async with trio.open_nursery() as nursery:
        world.cluster.is_opening = True
        identity = await begin(world, P0, P1)
        await world.crash(nursery)
        assert (await end_txn(world.service, TX, *identity, True, client_version=2)).error is LOADING
        world.cluster.is_opening = False
        await trio.sleep(2)
        assert world.service.is_ongoing_with(TX, *identity, [P0, P1])
        await trio.sleep(60)
        assert world.service.ids.counts["CompleteAbort"] == 1
        nursery.cancel_scope.cancel()


async def test_where_the_log_refuses_it_is_decided_again_later(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    async with trio.open_nursery() as nursery:
        world.cluster.is_opening = True
        told = world.cluster.how_ended
        world.cluster.how_ended = lambda *asked: HowEnded.UNKNOWN  # type: ignore[method-assign]
        identity = await cut_in_the_round(world, nursery)
        log = world.logs.logs[world.service.runtime.partition_for(TX)]
        log.refuses = ErrorCode.KAFKA_STORAGE_ERROR
        world.cluster.how_ended = told  # type: ignore[method-assign]
        await trio.sleep(5)
        assert (await end_txn(world.service, TX, *identity, True, client_version=2)).error is LOADING
        log.refuses = None
        await trio.sleep(5)
        assert world.service.ids.counts["CompleteCommit"] == 1
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("version", [0, 2])
async def test_markers_that_prove_nothing_wait_for_the_decision(
    world: World, version: int, autojump_clock: trio.testing.MockClock
) -> None:
    """Those of TV1, and of a transaction whose last partitions are not durable yet."""
    async with trio.open_nursery() as nursery:
        world.cluster.joins = True
        identity = await begin(world, P0, version=version)
        log = world.logs.logs[world.service.runtime.partition_for(TX)]
        log.hold()
        if version == 2:
            nursery.start_soon(lambda: world.service.ensure_partitions(TX, *identity, [P1], add=True))
            await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(lambda: end_txn(world.service, TX, *identity, True, client_version=version))
        await trio.testing.wait_all_tasks_blocked()
        assert world.cluster.rounds == []
        log.release()
        await trio.sleep(1)
        assert committed(world) == ["x"]
        nursery.cancel_scope.cancel()


async def test_the_next_transaction_is_told_apart(world: World, autojump_clock: trio.testing.MockClock) -> None:
    """The marker of the transaction before is no evidence for the one that is open."""
    async with trio.open_nursery() as nursery:
        world.cluster.joins = True
        identity = await begin(world, P0)
        ended = await end_txn(world.service, TX, *identity, True, client_version=2)
        await write(world, ended.producer_id, ended.epoch, P0, value="y")
        await world.crash(nursery)
        await trio.sleep(1)
        assert world.service.ids.counts["Ongoing"] == 1
        assert committed(world) == ["x"]
        nursery.cancel_scope.cancel()
