"""Partitions, verification and listings by the service (rows T3, T4, T15, T16, T18, T19)."""

import trio
import trio.testing

from fencepost.coordinator.partitioning import partition_for
from fencepost.coordinator.txn.config import TxnConfig
from fencepost.coordinator.txn.listing import Filters
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition
from tests.kit.clocks import START_MS
from tests.unit.txn.kit import P0, P1, P2, TX, World, begin, end_txn

NONE = ErrorCode.NONE


class TestPartitions:
    """Rows T3, T4, T15 and T16."""

    async def test_a_partition_that_does_not_exist_keeps_all_out(
        self, world: World, autojump_clock: trio.testing.MockClock
    ) -> None:
        answer = await world.service.init_producer_id(TX, 60_000)
        ghost = TopicPartition("ghost", 0)
        codes = await world.service.add_partitions(TX, answer.producer_id, answer.epoch, [P0, ghost])
        assert codes == {P0: ErrorCode.OPERATION_NOT_ATTEMPTED, ghost: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert world.service.ids.counts["Ongoing"] == 0

    async def test_offsets_join_with_the_groups_partition(
        self, world: World, autojump_clock: trio.testing.MockClock
    ) -> None:
        """Rows T1 and T4."""
        answer = await world.service.init_producer_id(TX, 60_000)
        assert await world.service.add_offsets(TX, answer.producer_id, answer.epoch, "readers") is NONE
        await end_txn(world.service, TX, answer.producer_id, answer.epoch, True, client_version=0)
        partition = TopicPartition("__consumer_offsets", partition_for("readers", 50))
        assert world.cluster.rounds[0][1] == frozenset({partition})

    async def test_verification_lets_in_only_what_was_added(
        self, world: World, autojump_clock: trio.testing.MockClock
    ) -> None:
        """Row T15, KIP-890 part 1."""
        producer_id, epoch = await begin(world, P0, version=0)
        ensure = world.service.ensure_partitions
        assert await ensure(TX, producer_id, epoch, [P0], add=False) == {P0: NONE}
        assert await ensure(TX, producer_id, epoch, [P0, P1], add=False) == {P0: NONE, P1: ErrorCode.INVALID_TXN_STATE}
        new = await ensure(TX, producer_id, epoch, [P1], add=False, knows_abortable=True)
        assert new == {P1: ErrorCode.TRANSACTION_ABORTABLE}
        assert await ensure(TX, producer_id, epoch - 1, [P0], add=False) == {P0: ErrorCode.INVALID_PRODUCER_EPOCH}
        foreign = await ensure(TX, 999, epoch, [P0], add=False)
        assert foreign == {P0: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
        for nameless in (None, ""):
            assert await ensure(nameless, producer_id, epoch, [P0], add=True) == {P0: ErrorCode.INVALID_REQUEST}
        batched = await world.service.add_partitions(TX, producer_id, epoch, [P0, P1], verify_only=True)
        assert batched == {P0: NONE, P1: ErrorCode.TRANSACTION_ABORTABLE}
        world.service.config.change_to(TxnConfig(transaction_partition_verification_enable=False))
        assert await ensure(TX, producer_id, epoch, [P1], add=False) == {P1: NONE}

    async def test_the_common_path_does_not_wait(self, world: World, autojump_clock: trio.testing.MockClock) -> None:
        producer_id, epoch = await begin(world, P0, P1)
        appends = sum(log.appends for log in world.logs.logs.values())
        with trio.testing.assert_no_checkpoints():
            codes = await world.service.ensure_partitions(TX, producer_id, epoch, [P1, P0], add=True)
        assert codes == {P0: NONE, P1: NONE}
        assert world.service.is_ongoing_with(TX, producer_id, epoch, [P0])
        assert not world.service.is_ongoing_with(TX, producer_id, epoch + 1, [P0])
        assert not world.service.is_ongoing_with(TX, producer_id, epoch, [P2])
        assert not world.service.is_ongoing_with("unknown", producer_id, epoch, [P0])
        assert sum(log.appends for log in world.logs.logs.values()) == appends

    async def test_data_waits_until_its_transaction_is_durable(
        self, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
    ) -> None:
        """Else a crash could keep the data and lose the transaction: it would hang for ever."""
        world = World(log_delay=0.5)
        service = await world.start(nursery)
        answer = await service.init_producer_id(TX, 60_000)
        times: list[float] = []

        async def ensure() -> None:
            await service.ensure_partitions(TX, answer.producer_id, answer.epoch, [P0], add=True)
            times.append(trio.current_time())

        began = trio.current_time()
        async with trio.open_nursery() as both:
            both.start_soon(ensure)
            await trio.testing.wait_all_tasks_blocked()
            assert not service.is_ongoing_with(TX, answer.producer_id, answer.epoch, [P0])
            both.start_soon(ensure)
        assert [time - began for time in times] == [0.5, 0.5]
        assert service.is_ongoing_with(TX, answer.producer_id, answer.epoch, [P0])

    async def test_no_end_of_the_transaction_fits_between_the_check_and_the_append(
        self, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
    ) -> None:
        """What Kafka's VerificationGuard is for (row T16): a commit comes while the partition becomes durable."""
        world = World(log_delay=0.5)
        service = await world.start(nursery)
        answer = await service.init_producer_id(TX, 60_000)
        producer_id, epoch = answer.producer_id, answer.epoch
        await service.ensure_partitions(TX, producer_id, epoch, [P0], add=True)
        codes: dict[TopicPartition, ErrorCode] = {}

        async def produce() -> None:
            codes.update(await service.ensure_partitions(TX, producer_id, epoch, [P1], add=True))
            if codes[P1] is NONE:
                world.cluster.partitions[P1].append(producer_id, epoch, "hanging")

        async with trio.open_nursery() as both:
            both.start_soon(produce)
            await trio.testing.wait_all_tasks_blocked()
            both.start_soon(lambda: end_txn(service, TX, producer_id, epoch, True, client_version=2))
        assert codes == {P1: ErrorCode.INVALID_PRODUCER_EPOCH}
        assert not world.cluster.partitions[P1].open

    async def test_a_request_that_is_given_up_does_not_leave_the_transaction_unusable(
        self, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
    ) -> None:
        world = World(log_delay=0.5)
        service = await world.start(nursery)
        answer = await service.init_producer_id(TX, 60_000)
        with trio.move_on_after(0.1):
            await service.ensure_partitions(TX, answer.producer_id, answer.epoch, [P0], add=True)
        codes = await service.ensure_partitions(TX, answer.producer_id, answer.epoch, [P0], add=True)
        assert codes == {P0: NONE}
        assert service.is_ongoing_with(TX, answer.producer_id, answer.epoch, [P0])

    async def test_partitions_are_limited_in_number(self, world: World, autojump_clock: trio.testing.MockClock) -> None:
        world.service.config.change_to(TxnConfig(max_partitions_per_transaction=1))
        producer_id, epoch = await begin(world, P0)
        codes = await world.service.ensure_partitions(TX, producer_id, epoch, [P1], add=True)
        assert codes == {P1: ErrorCode.POLICY_VIOLATION}


class TestLooking:
    """Rows T18 and T19."""

    async def test_describe(self, world: World, autojump_clock: trio.testing.MockClock) -> None:
        assert (await world.service.describe("")).error is ErrorCode.INVALID_REQUEST
        assert (await world.service.describe(TX)).error is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert not world.logs.logs, "to ask makes no log"
        producer_id, epoch = await begin(world, P0, P1)
        told = await world.service.describe(TX)
        assert (told.error, told.state, told.producer_id, told.producer_epoch) == (NONE, "Ongoing", producer_id, epoch)
        assert told.partitions == frozenset({P0, P1})
        assert told.timeout_ms == 60_000

    async def test_of_a_decided_transaction_only_what_is_owed_is_shown(
        self, world: World, autojump_clock: trio.testing.MockClock
    ) -> None:
        identity = await begin(world, P0, P1)
        world.cluster.answers = [{P1: ErrorCode.KAFKA_STORAGE_ERROR}] * 100
        with trio.move_on_after(1):
            await end_txn(world.service, TX, *identity, True, client_version=2)
        told = await world.service.describe(TX)
        assert (told.state, told.partitions) == ("PrepareCommit", frozenset({P1}))
        assert world.service.completing == 1

    async def test_list_and_counts(self, world: World, autojump_clock: trio.testing.MockClock) -> None:
        producer_id, _ = await begin(world)
        await world.service.init_producer_id("other", 60_000)
        listed = await world.service.list_transactions(Filters(states=frozenset({"Ongoing"})))
        assert [(line.transactional_id, line.producer_id) for line in listed.transactions] == [(TX, producer_id)]
        refused = await world.service.list_transactions(Filters(pattern="("))
        assert refused.error is ErrorCode.INVALID_REGULAR_EXPRESSION
        assert world.service.ids.counts["Ongoing"] == world.service.ids.counts["Empty"] == 1
        assert world.service.ids.oldest_open_started_ms is not None
        assert world.service.ids.oldest_open_started_ms >= START_MS
