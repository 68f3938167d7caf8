"""InitProducerId and EndTxn by the service, over memory and virtual time (rows P1, P12, T2, T7, T8, T24)."""

from dataclasses import replace
from typing import Any

import pytest
import trio
import trio.testing

from fencepost.coordinator.ports import LogWriteFailed, Marker
from fencepost.coordinator.txn import codec
from fencepost.coordinator.txn.commands import EndTxn, resolve
from fencepost.coordinator.txn.completion import COMPLETE_DELAY_SECONDS
from fencepost.coordinator.txn.config import TxnConfig
from fencepost.coordinator.txn.state import Empty, TxnRecord
from fencepost.protocol.errors import ErrorCode
from tests.unit.txn.kit import P0, P1, P2, TX, World, begin, committed, end_txn, write

NONE = ErrorCode.NONE


def names_in_log(world: World) -> list[str]:
    """The states of the id as its log has them."""
    log = world.logs.logs[world.service.runtime.partition_for(TX)]
    found = [codec.decode(*record) for record in log.records()]
    return [record.state.name for record in found if record is not None]


def _at_epoch(world: World, name: str, epoch: int) -> Any:
    state = world.service.ids.state_of(name)
    assert isinstance(state, Empty)
    return TxnRecord(name, replace(state, producer=replace(state.producer, epoch=epoch)))


class TestInitProducerId:
    """Rows P1 and T2."""

    async def test_without_a_transactional_id_it_is_a_fresh_identity_every_time(
        self, world: World, autojump_clock: trio.testing.MockClock
    ) -> None:
        answers = [await world.service.init_producer_id(None, -1) for _ in range(3)]
        assert [(answer.producer_id, answer.epoch) for answer in answers] == [(1, 0), (2, 0), (3, 0)]
        assert not world.logs.logs

    @pytest.mark.parametrize(
        ("arguments", "error"),
        [
            (("", 60_000), ErrorCode.INVALID_REQUEST),
            ((TX, 0), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
            ((TX, -1), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
            ((TX, 900_001), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
            ((TX, 60_000, 5, -1), ErrorCode.INVALID_REQUEST),
            ((None, 60_000, -1, 5), ErrorCode.INVALID_REQUEST),
        ],
    )
    async def test_what_makes_no_sense_is_refused(
        self, world: World, arguments: Any, error: ErrorCode, autojump_clock: trio.testing.MockClock
    ) -> None:
        assert (await world.service.init_producer_id(*arguments)).error is error

    async def test_without_a_producer_id_it_may_be_repeated(
        self, world: World, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
    ) -> None:
        """Another controller has taken over. Kafka's RPCProducerIdManager answers so while it has no ids."""

        async def refuse() -> int:
            raise LogWriteFailed(ErrorCode.NOT_CONTROLLER, "another controller has taken over")

        with monkeypatch.context() as patch:
            patch.setattr(world.ids, "next_producer_id", refuse)
            assert (await world.service.init_producer_id(TX, 60_000)).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert (await world.service.init_producer_id(TX, 60_000)).error is NONE

    async def test_the_record_is_durable_before_the_answer(
        self, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
    ) -> None:
        world = World(log_delay=0.5)
        await world.start(nursery)
        began = trio.current_time()
        await world.service.init_producer_id(TX, 60_000)
        assert trio.current_time() - began == 0.5

    @pytest.mark.parametrize("version", [0, 2])
    async def test_a_newcomer_aborts_the_dead_producers_records_and_then_owns_the_id(
        self, world: World, version: int, autojump_clock: trio.testing.MockClock
    ) -> None:
        """Row T2: the dead producer's records must never be committed by its successor's first commit."""
        zombie = await begin(world, P0, version=version, value="zombie")
        heir = await world.service.init_producer_id(TX, 60_000)
        assert heir.error is NONE
        assert heir.producer_id == zombie[0]
        assert heir.epoch > zombie[1]
        assert isinstance(world.cluster.partitions[P0].entries[-1], Marker), "the abort is written before the answer"
        assert world.cluster.partitions[P0].append(*zombie, "zombie 2") is ErrorCode.INVALID_PRODUCER_EPOCH
        late = await end_txn(world.service, TX, *zombie, True, client_version=version)
        assert late.error is ErrorCode.PRODUCER_FENCED
        await write(world, heir.producer_id, heir.epoch, P0, version=version, value="heir")
        await end_txn(world.service, TX, heir.producer_id, heir.epoch, True, client_version=version)
        assert committed(world) == ["heir"]

    async def test_two_newcomers_at_once_both_get_an_identity_and_the_later_one_rules(
        self, world: World, autojump_clock: trio.testing.MockClock
    ) -> None:
        await begin(world)
        answers: list[Any] = []

        async def come() -> None:
            answers.append(await world.service.init_producer_id(TX, 60_000))

        async with trio.open_nursery() as both:
            both.start_soon(come)
            both.start_soon(come)
        first, second = sorted(answers, key=lambda answer: int(answer.epoch))
        assert first.error is second.error is NONE
        assert second.epoch == first.epoch + 1
        assert len(world.cluster.rounds) == 1, "one abort is enough for both"
        fenced = await world.service.add_partitions(TX, first.producer_id, first.epoch, [P0])
        assert fenced == {P0: ErrorCode.PRODUCER_FENCED}

    async def test_ids_are_limited_in_number(
        self, nursery: trio.Nursery, world: World, autojump_clock: trio.testing.MockClock
    ) -> None:
        world.service.config.change_to(TxnConfig(max_transactional_ids=1))
        await world.service.init_producer_id(TX, 60_000)
        assert (await world.service.init_producer_id("other", 60_000)).error is ErrorCode.POLICY_VIOLATION
        assert (await world.service.init_producer_id(TX, 60_000)).error is NONE


class TestEndTxn:
    """Row T7: PREPARE, markers, COMPLETE; and the answer after all that."""

    @pytest.mark.parametrize("version", [0, 2])
    async def test_who_reads_right_after_the_answer_sees_the_commit(
        self, world: World, version: int, autojump_clock: trio.testing.MockClock
    ) -> None:
        world.cluster.delay = 0.2
        identity = await begin(world, P0, P1, version=version)
        answer = await end_txn(world.service, TX, *identity, True, client_version=version)
        assert answer.error is NONE
        assert (answer.producer_id, answer.epoch) == (identity[0], identity[1] + (1 if version == 2 else 0))
        assert committed(world, P0) == committed(world, P1) == ["x"]
        assert world.service.tallies.ended["commit", "client"] == 1

    @pytest.mark.parametrize("version", [0, 2])
    async def test_the_next_transaction_never_meets_concurrent_transactions(
        self, world: World, version: int, autojump_clock: trio.testing.MockClock
    ) -> None:
        world.cluster.delay = 0.2
        identity = await begin(world, version=version)
        for number in range(5):
            answer = await end_txn(world.service, TX, *identity, number % 2 == 0, client_version=version)
            assert answer.error is NONE
            identity = answer.producer_id, answer.epoch
            await write(world, *identity, P0, version=version, value=str(number))
        assert committed(world) == ["x", "1", "3"]

    async def test_no_marker_is_written_before_the_decision_is_durable(
        self, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
    ) -> None:
        """Else a crash could lose the decision and keep one of its markers: a torn transaction."""
        world = World(log_delay=0.5)
        await world.start(nursery)
        identity = await begin(world, P0, P1)
        began = trio.current_time()
        nursery.start_soon(lambda: end_txn(world.service, TX, *identity, True, client_version=2))
        await trio.sleep_until(began + 0.49)
        assert world.service.ids.counts["PrepareCommit"] == 1
        assert world.cluster.rounds == []
        await trio.sleep_until(began + 0.51)
        assert len(world.cluster.rounds) == 1

    async def test_requests_that_meet_a_decided_transaction_wait_for_it(
        self, world: World, autojump_clock: trio.testing.MockClock
    ) -> None:
        """Kafka answers CONCURRENT_TRANSACTIONS here (table 0, rows 12 and 13).

        The repeated EndTxn must not end the transaction that the waiting AddPartitions begins under the same epoch.
        """
        world.cluster.delay = 1.0
        producer_id, epoch = await begin(world, version=0)
        done: list[str] = []

        async def end() -> None:
            assert (await end_txn(world.service, TX, producer_id, epoch, True, client_version=0)).error is NONE
            done.append("end")

        async def end_again() -> None:
            assert (await end_txn(world.service, TX, producer_id, epoch, True, client_version=0)).error is NONE
            done.append("end again")

        async def add() -> None:
            codes = await world.service.add_partitions(TX, producer_id, epoch, [P1])
            assert codes == {P1: NONE}
            done.append("add")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(end)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(end_again)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(add)
            await trio.testing.wait_all_tasks_blocked()
            assert done == []
            assert world.service.ids.counts["PrepareCommit"] == 1
        assert sorted(done) == ["add", "end", "end again"]
        assert world.service.ids.counts["Ongoing"] == 1

    async def test_patience_ends_in_concurrent_transactions_and_the_outcome_stands(
        self, world: World, autojump_clock: trio.testing.MockClock
    ) -> None:
        world.cluster.gate = trio.Event()
        identity = await begin(world)
        began = trio.current_time()
        answer = await end_txn(world.service, TX, *identity, True, client_version=2)
        assert answer.error is NONE, "the decision is durable; only its markers are late"
        assert trio.current_time() - began == 5.0
        assert (await world.service.init_producer_id(TX, 1_000)).error is ErrorCode.CONCURRENT_TRANSACTIONS
        codes = await world.service.add_partitions(TX, answer.producer_id, answer.epoch, [P0])
        assert codes == {P0: ErrorCode.CONCURRENT_TRANSACTIONS}
        world.cluster.gate.set()
        assert (await world.service.init_producer_id(TX, 1_000)).error is NONE
        assert committed(world) == ["x"]

    async def test_a_client_that_hangs_up_does_not_stop_its_commit(
        self, world: World, autojump_clock: trio.testing.MockClock
    ) -> None:
        world.cluster.gate = trio.Event()
        identity = await begin(world)
        with trio.move_on_after(1):
            await end_txn(world.service, TX, *identity, True, client_version=2)
        world.cluster.gate.set()
        retried = await end_txn(world.service, TX, *identity, True, client_version=2)
        assert (retried.error, retried.epoch) == (NONE, identity[1] + 1)
        assert committed(world) == ["x"]
        assert len(world.cluster.rounds) == 1

    @pytest.mark.parametrize("request_of", ["the same client", "its next transaction", "another one"])
    async def test_a_request_begins_to_wait_for_markers_that_are_written_by_then(
        self, nursery: trio.Nursery, request_of: str
    ) -> None:
        """A connection's task takes the answer over a turn of the loop after the decision."""
        world = World()
        service = await world.start(nursery)
        identity = producer_id, epoch = await begin(world, P0)
        world.cluster.gate = trio.Event()
        nursery.start_soon(lambda: end_txn(service, TX, *identity, True, client_version=2))
        await trio.testing.wait_all_tasks_blocked()
        if request_of == "the same client":
            soon, expected = service.submit(TX, EndTxn(*identity, True, 2), None), NONE
        elif request_of == "its next transaction":
            soon, expected = service.adding(TX, producer_id, epoch + 1, frozenset({P1}), 2, None), NONE
        else:
            soon = service.submit(TX, EndTxn(producer_id, epoch + 1, True, 2), None)
            expected = ErrorCode.INVALID_TXN_STATE
        world.cluster.gate.set()
        await trio.testing.wait_all_tasks_blocked()
        assert (await resolve(soon)).error is expected

    async def test_markers_are_tried_again_until_every_partition_has_one(
        self, world: World, autojump_clock: trio.testing.MockClock
    ) -> None:
        """Row T8."""
        identity = await begin(world, P0, P1, P2)
        world.cluster.answers = [
            {P0: ErrorCode.KAFKA_STORAGE_ERROR, P1: ErrorCode.NOT_LEADER_OR_FOLLOWER},
            {P1: ErrorCode.KAFKA_STORAGE_ERROR},
        ]
        assert (await end_txn(world.service, TX, *identity, True, client_version=2)).error is NONE
        assert [partitions for *_, partitions in world.cluster.rounds] == [
            frozenset({P0, P1, P2}),
            frozenset({P0, P1}),
            frozenset({P1}),
        ]
        assert committed(world, P0) == committed(world, P1) == committed(world, P2) == ["x"]

    async def test_a_deleted_topic_does_not_hold_the_transaction_up(
        self, world: World, autojump_clock: trio.testing.MockClock
    ) -> None:
        identity = await begin(world, P0, P1)
        del world.cluster.partitions[P1]
        assert (await end_txn(world.service, TX, *identity, True, client_version=2)).error is NONE
        assert committed(world, P0) == ["x"]

    async def test_a_partition_that_an_operator_has_ended_does_not_hold_the_id(
        self, world: World, autojump_clock: trio.testing.MockClock
    ) -> None:
        """Row T8: Kafka would leave the id in Prepare until its coordinator moves."""
        identity = await begin(world, P0, P1)
        world.cluster.partitions[P1].mark(Marker(identity[0], identity[1] + 5, False, 0, 0))
        assert (await end_txn(world.service, TX, *identity, True, client_version=2)).error is NONE
        assert committed(world, P0) == ["x"]
        assert committed(world, P1) == []

    async def test_a_refused_decision_changes_nothing(
        self, world: World, autojump_clock: trio.testing.MockClock
    ) -> None:
        identity = await begin(world)
        world.logs.refuse(ErrorCode.KAFKA_STORAGE_ERROR)
        answer = await end_txn(world.service, TX, *identity, True, client_version=2)
        assert answer.error is ErrorCode.NOT_COORDINATOR
        assert world.cluster.rounds == []
        world.logs.refuse(None)
        assert (await end_txn(world.service, TX, *identity, False, client_version=2)).error is NONE
        assert committed(world) == []

    async def test_a_completion_that_the_log_refuses_is_tried_again(
        self, world: World, autojump_clock: trio.testing.MockClock
    ) -> None:
        """Row T7: the outcome stands and is answered, and nothing of the id gets into the log before its Complete."""
        world.cluster.gate = trio.Event()
        identity = await begin(world)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: end_txn(world.service, TX, *identity, True, client_version=2))
            await trio.testing.wait_all_tasks_blocked()
            world.logs.refuse(ErrorCode.KAFKA_STORAGE_ERROR)
            world.cluster.gate.set()
        assert world.service.ids.counts["CompleteCommit"] == 1
        following = identity[0], identity[1] + 1
        refused = await world.service.ensure_partitions(TX, *following, [P0], add=True)
        assert refused == {P0: ErrorCode.NOT_ENOUGH_REPLICAS}
        world.logs.refuse(None)
        await trio.sleep(0.3)
        assert names_in_log(world)[-2:] == ["PrepareCommit", "CompleteCommit"]
        await write(world, *following, P0)
        assert names_in_log(world)[-2:] == ["CompleteCommit", "Ongoing"]

    async def test_complete_follows_the_answer_and_comes_before_what_is_next(
        self, world: World, autojump_clock: trio.testing.MockClock
    ) -> None:
        """Row T7: one record per arrow, in order, whether or not the client goes on at once."""
        world.cluster.at_once = True
        identity = await begin(world)
        await end_txn(world.service, TX, *identity, True, client_version=2)
        assert names_in_log(world) == ["Empty", "Ongoing", "PrepareCommit"]
        await write(world, identity[0], identity[1] + 1, P0)
        assert names_in_log(world)[2:] == ["PrepareCommit", "CompleteCommit", "Ongoing"]
        await end_txn(world.service, TX, identity[0], identity[1] + 1, False, client_version=2)
        await trio.sleep(COMPLETE_DELAY_SECONDS)
        await trio.testing.wait_all_tasks_blocked()
        assert names_in_log(world)[4:] == ["Ongoing", "PrepareAbort", "CompleteAbort"]

    async def test_an_abort_of_nothing_bumps_under_tv2_and_is_refused_before(
        self, world: World, autojump_clock: trio.testing.MockClock
    ) -> None:
        """Row T24."""
        answer = await world.service.init_producer_id(TX, 60_000)
        identity = answer.producer_id, answer.epoch
        refused = await end_txn(world.service, TX, *identity, False, client_version=0)
        assert refused.error is ErrorCode.INVALID_TXN_STATE
        bumped = await end_txn(world.service, TX, *identity, False, client_version=2)
        assert (bumped.error, bumped.epoch) == (NONE, 1)
        assert world.cluster.rounds == []

    async def test_the_last_epoch_changes_to_a_fresh_producer_id(
        self, world: World, autojump_clock: trio.testing.MockClock
    ) -> None:
        """Row P12, by the service: it fetches the producer id itself."""
        world.ids.next = 7
        first = await world.service.init_producer_id(TX, 60_000)
        identity = first.producer_id, 32766
        world.service.runtime.shard_of(TX).state.put(_at_epoch(world, TX, identity[1]))
        await write(world, *identity, P0)
        answer = await end_txn(world.service, TX, *identity, True, client_version=2)
        assert (answer.error, answer.producer_id, answer.epoch) == (NONE, 8, 0)
        retried = await end_txn(world.service, TX, *identity, True, client_version=2)
        assert (retried.error, retried.producer_id, retried.epoch) == (NONE, 8, 0)
        assert committed(world) == ["x"]
