"""Timeouts, expiry and crashes of the service (rows P6, T10, T12, T13, T25)."""

import pytest
import trio
import trio.testing

from fencepost.coordinator.partitioning import partition_for
from fencepost.coordinator.txn import codec
from fencepost.coordinator.txn.coordinator import TransactionCoordinator
from fencepost.coordinator.txn.listing import Filters
from fencepost.protocol.errors import ErrorCode
from tests.unit.txn.kit import P0, P1, TX, World, begin, committed, end_txn, write

NONE = ErrorCode.NONE


class TestClocks:
    """Rows T10 and T12."""

    @pytest.mark.parametrize("version", [0, 2])
    async def test_no_transaction_outlives_its_timeout_by_a_second(
        self, world: World, version: int, autojump_clock: trio.testing.MockClock
    ) -> None:
        answer = await world.service.init_producer_id(TX, 2_000)
        await write(world, answer.producer_id, answer.epoch, P0, version=version)
        await trio.sleep(1.9)
        assert world.service.ids.counts["Ongoing"] == 1
        await trio.sleep(1.0)
        assert world.service.ids.counts["CompleteAbort"] == 1
        assert committed(world) == []
        assert not world.cluster.partitions[P0].open
        assert world.service.tallies.ended["abort", "timeout"] == 1
        late = await end_txn(world.service, TX, answer.producer_id, answer.epoch, True, client_version=version)
        assert late.error is ErrorCode.PRODUCER_FENCED

    @pytest.mark.parametrize("shift_ms", [3_600_000, -3_600_000])
    async def test_a_wall_clock_that_jumps_ends_no_transaction_and_prolongs_none(
        self, world: World, shift_ms: int, autojump_clock: trio.testing.MockClock
    ) -> None:
        answer = await world.service.init_producer_id(TX, 2_000)
        await write(world, answer.producer_id, answer.epoch, P0)
        world.clock.shift_ms = shift_ms
        await trio.sleep(1.9)
        assert world.service.ids.counts["Ongoing"] == 1
        await trio.sleep(1.0)
        assert world.service.ids.counts["CompleteAbort"] == 1

    async def test_writing_more_does_not_prolong_a_transaction(
        self, world: World, autojump_clock: trio.testing.MockClock
    ) -> None:
        answer = await world.service.init_producer_id(TX, 2_000)
        await write(world, answer.producer_id, answer.epoch, P0)
        await trio.sleep(1.5)
        await write(world, answer.producer_id, answer.epoch, P1)
        await trio.sleep(1.2)
        assert world.service.ids.counts["CompleteAbort"] == 1

    async def test_a_commit_in_time_stops_the_clock(self, world: World, autojump_clock: trio.testing.MockClock) -> None:
        answer = await world.service.init_producer_id(TX, 2_000)
        await write(world, answer.producer_id, answer.epoch, P0)
        await end_txn(world.service, TX, answer.producer_id, answer.epoch, True, client_version=2)
        await trio.sleep(10)
        assert committed(world) == ["x"]
        assert ("abort", "timeout") not in world.service.tallies.ended
        assert len(world.service.runtime.timers) == 0

    async def test_a_commit_under_way_is_not_timed_out(
        self, world: World, autojump_clock: trio.testing.MockClock
    ) -> None:
        """A decision stands, however long its markers take."""
        answer = await world.service.init_producer_id(TX, 2_000)
        await write(world, answer.producer_id, answer.epoch, P0)
        world.cluster.gate = trio.Event()
        await end_txn(world.service, TX, answer.producer_id, answer.epoch, True, client_version=2)
        await trio.sleep(10)
        world.cluster.gate.set()
        await trio.testing.wait_all_tasks_blocked()
        assert committed(world) == ["x"]

    async def test_a_log_that_refuses_the_abort_is_asked_again(
        self, world: World, autojump_clock: trio.testing.MockClock
    ) -> None:
        answer = await world.service.init_producer_id(TX, 2_000)
        await write(world, answer.producer_id, answer.epoch, P0)
        world.logs.refuse(ErrorCode.KAFKA_STORAGE_ERROR)
        await trio.sleep(5)
        assert world.service.ids.counts["Ongoing"] == 1
        world.logs.refuse(None)
        await trio.sleep(1)
        assert world.service.ids.counts["CompleteAbort"] == 1
        assert world.service.tallies.ended["abort", "timeout"] == 1
        assert 2 <= world.service.tallies.durations[False].sum_seconds <= 7, "from its first partition to its markers"

    async def test_unused_ids_are_forgotten_with_tombstones(
        self, nursery: trio.Nursery, world: World, autojump_clock: trio.testing.MockClock
    ) -> None:
        """Row T12, seven days in an instant."""
        for number in range(3):
            await world.service.init_producer_id(f"old-{number}", 60_000)
        await trio.sleep(6 * 86_400)
        await world.service.init_producer_id("young", 60_000)
        await trio.sleep(1.5 * 86_400)
        listed = await world.service.list_transactions(Filters())
        assert [line.transactional_id for line in listed.transactions] == ["young"]
        again = await world.crash(nursery)
        assert len(again.ids) == 1, "the tombstones are in the log"

    async def test_tombstones_are_written_some_hundred_to_a_batch_t12(
        self, world: World, autojump_clock: trio.testing.MockClock
    ) -> None:
        """As in Kafka, which writes one batch a partition: a million unused ids are not a million appends."""
        count = partition_for(TX, 50)
        names = [name for name in map(str, range(60_000)) if partition_for(name, 50) == count][:1_100]
        for name in names:
            await world.service.init_producer_id(name, 60_000)
        log = world.logs.logs[count]
        before = log.appends
        await trio.sleep(7 * 86_400 + 3_600)
        assert len(world.service.ids) == 0
        assert [len(batch.records) for batch in log.batches[before:]] == [500, 500, 100]
        assert all(value is None for batch in log.batches[before:] for _, value in batch.records)

    async def test_ids_that_came_into_use_while_others_were_forgotten_write_no_empty_batch_t12(
        self,
        nursery: trio.Nursery,
        world: World,
        monkeypatch: pytest.MonkeyPatch,
        autojump_clock: trio.testing.MockClock,
    ) -> None:
        """Nobody could read a log back that holds a batch without records."""
        monkeypatch.setattr("fencepost.coordinator.txn.taken_ids.EXPIRY_BATCH", 1)
        partition = partition_for(TX, 50)
        other = next(name for name in map(str, range(1_000)) if partition_for(name, 50) == partition)
        for name in (TX, other):
            await world.service.init_producer_id(name, 60_000)
        log = world.logs.logs[partition]
        log.hold()
        await trio.sleep(7 * 86_400 + 3_600)
        assert len(log.batches) == 3, "the first tombstone waits for the disk"
        nursery.start_soon(world.service.init_producer_id, other, 60_000)
        await trio.testing.wait_all_tasks_blocked()
        log.release()
        await trio.testing.wait_all_tasks_blocked()
        assert [len(batch.records) for batch in log.batches] == [1] * 4
        assert [name for name, _ in world.service.runtime.shards()[0].state.items()] == [other]

    async def test_expiry_goes_on_after_a_refused_write(
        self, world: World, autojump_clock: trio.testing.MockClock
    ) -> None:
        await world.service.init_producer_id(TX, 60_000)
        await trio.sleep(7 * 86_400 - 60)
        world.logs.refuse(ErrorCode.KAFKA_STORAGE_ERROR)
        await trio.sleep(7_200)
        assert len(world.service.ids) == 1
        world.logs.refuse(None)
        await trio.sleep(3_600)
        assert len(world.service.ids) == 0


class TestCrash:
    """Row T13: the state is the fold of the log, and what was decided is carried through."""

    async def test_before_it_runs_it_says_that_it_is_loading(self, autojump_clock: trio.testing.MockClock) -> None:
        world = World()
        service = TransactionCoordinator(
            logs=world.logs, markers=world.cluster, producer_ids=world.ids, topics=world.cluster, clock=world.clock
        )
        await service.start()
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert (await service.init_producer_id(TX, 60_000)).error is loading
        assert (await end_txn(service, TX, 1, 0, True, client_version=2)).error is loading
        assert (await service.describe(TX)).error is loading
        assert (await service.list_transactions(Filters())).error is loading
        codes = await service.ensure_partitions(TX, 1, 0, [P0], add=True)
        assert codes == {P0: ErrorCode.NOT_ENOUGH_REPLICAS}

    @pytest.mark.parametrize("commit", [True, False])
    async def test_a_decided_transaction_is_rolled_forward(
        self, nursery: trio.Nursery, world: World, commit: bool, autojump_clock: trio.testing.MockClock
    ) -> None:
        world.cluster.gate = trio.Event()
        identity = await begin(world, P0, P1)
        await end_txn(world.service, TX, *identity, commit, client_version=2)
        await world.crash(nursery)
        await trio.testing.wait_all_tasks_blocked()
        assert committed(world, P0) == committed(world, P1) == (["x"] if commit else [])
        retried = await end_txn(world.service, TX, *identity, commit, client_version=2)
        assert (retried.error, retried.epoch) == (NONE, identity[1] + 1)

    @pytest.mark.parametrize("version", [0, 2])
    async def test_markers_that_were_written_before_the_crash_do_no_harm(
        self, nursery: trio.Nursery, world: World, version: int, autojump_clock: trio.testing.MockClock
    ) -> None:
        """Row T25: the Complete record was lost, so all markers come again."""
        identity = await begin(world, P0, version=version)
        await end_txn(world.service, TX, *identity, True, client_version=version)
        shard = world.service.runtime.shard_of(TX)
        assert shard.state.state_of(TX).name == "CompleteCommit"
        log = world.logs.logs[world.service.runtime.partition_for(TX)]
        last = codec.decode(*log.records()[log.durable_end - 1])
        assert last is not None
        assert last.state.name == "PrepareCommit", "the answer does not wait for the Complete record"
        await world.crash(nursery)
        await trio.testing.wait_all_tasks_blocked()
        assert world.service.ids.counts["CompleteCommit"] == 1
        assert committed(world) == ["x"]

    async def test_an_open_transaction_goes_on_after_a_crash(
        self, nursery: trio.Nursery, world: World, autojump_clock: trio.testing.MockClock
    ) -> None:
        identity = await begin(world)
        await world.crash(nursery)
        await write(world, *identity, P1)
        assert (await end_txn(world.service, TX, *identity, True, client_version=2)).error is NONE
        assert committed(world, P0) == committed(world, P1) == ["x"]

    async def test_an_open_transaction_keeps_its_deadline_over_a_crash(
        self, nursery: trio.Nursery, world: World, autojump_clock: trio.testing.MockClock
    ) -> None:
        answer = await world.service.init_producer_id(TX, 2_000)
        await write(world, answer.producer_id, answer.epoch, P0)
        await trio.sleep(1.5)
        await world.crash(nursery)
        await trio.sleep(1.2)
        assert world.service.ids.counts["CompleteAbort"] == 1

    async def test_a_bump_whose_answer_was_lost_is_found_again_after_a_crash(
        self, nursery: trio.Nursery, world: World, autojump_clock: trio.testing.MockClock
    ) -> None:
        """Row P6: Kafka fences here, for it does not persist the epoch before."""
        answer = await world.service.init_producer_id(TX, 60_000)
        bumped = await world.service.init_producer_id(TX, 60_000, answer.producer_id, answer.epoch)
        await world.crash(nursery)
        retried = await world.service.init_producer_id(TX, 60_000, answer.producer_id, answer.epoch)
        assert (retried.error, retried.epoch) == (NONE, bumped.epoch)
