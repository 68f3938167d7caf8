"""Transaction requests at every version, through a whole node (rows T1-T4, T11, T15-T17, T24)."""

import pytest
import trio
import trio.testing

from fencepost.coordinator.partitioning import partition_for
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api10_find_coordinator import FindCoordinatorRequest
from fencepost.protocol.messages.api24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from fencepost.protocol.topics import TopicPartition
from tests.unit.broker.txn_node import (
    GONE,
    INIT,
    T0,
    T1,
    TX,
    add_offsets,
    alter_broker,
    running,
    stuck_markers,
    versions,
)

MockClock = trio.testing.MockClock
E = ErrorCode


class TestFencedOrOldEpoch:
    """Row T11 (KIP-588): a stale epoch is PRODUCER_FENCED from a version on that differs by API, 47 before."""

    @pytest.mark.parametrize("version", versions(INIT, since=3))
    async def test_init_producer_id(self, version: int, autojump_clock: MockClock) -> None:
        async with running() as on:
            first = await on.identity()
            await on.identity()
            answer = await on.init(version, first)
            assert answer.error_code == (E.PRODUCER_FENCED if version >= 4 else E.INVALID_PRODUCER_EPOCH)
            assert (answer.producer_id, answer.producer_epoch) == (-1, -1)

    @pytest.mark.parametrize("version", versions(24))
    async def test_add_partitions(self, version: int, autojump_clock: MockClock) -> None:
        async with running() as on:
            first = await on.identity()
            await on.identity()
            expected = E.PRODUCER_FENCED if version >= 2 else E.INVALID_PRODUCER_EPOCH
            assert await on.add(version, first, T0, T1) == [expected] * 2

    @pytest.mark.parametrize("version", versions(25))
    async def test_add_offsets(self, version: int, autojump_clock: MockClock) -> None:
        async with running() as on:
            first = await on.identity()
            await on.identity()
            expected = E.PRODUCER_FENCED if version >= 2 else E.INVALID_PRODUCER_EPOCH
            assert await add_offsets(on, version, first) == expected

    @pytest.mark.parametrize("version", versions(26))
    async def test_end_txn(self, version: int, autojump_clock: MockClock) -> None:
        async with running() as on:
            first = await on.identity()
            await on.identity()
            await on.identity()  # two epochs on: with one, TV2 would ask whether it is a retry
            expected = E.PRODUCER_FENCED if version >= 2 else E.INVALID_PRODUCER_EPOCH
            assert (await on.end(version, first, commit=False)).error_code == expected

    @pytest.mark.parametrize("version", versions(0))
    async def test_produce_never_says_fenced(self, version: int, autojump_clock: MockClock) -> None:
        """Row P4: on the produce path it is 47 in every version, from the log and from the coordinator."""
        async with running() as on:
            first = await on.identity()
            assert await on.add(3, first, T0) == [E.NONE]
            assert await on.produce(version, first, T0, b"a", 0) == E.NONE
            second = await on.identity()
            assert second[1] > first[1]
            for name in (T0, T1):
                assert await on.produce(version, first, name, b"late", 1) == E.INVALID_PRODUCER_EPOCH
            assert await on.committed(T0) == []


class TestInitProducerId:
    """Row T2, the error rows; those of v6 are in test_txn_two_phase.py."""

    @pytest.mark.parametrize("version", versions(INIT))
    async def test_what_makes_no_sense(self, version: int, autojump_clock: MockClock) -> None:
        async with running() as on:
            assert (await on.init(version, transactional_id="")).error_code == E.INVALID_REQUEST
            for timeout_ms in (0, -1, 900_001):
                answer = await on.init(version, transaction_timeout_ms=timeout_ms)
                assert answer.error_code == E.INVALID_TRANSACTION_TIMEOUT
            assert (await on.init(version, transaction_timeout_ms=900_000)).error_code == E.NONE
            for held in ((5, -1), (-1, 5)) if version >= 3 else ():
                assert (await on.init(version, held)).error_code == E.INVALID_REQUEST

    @pytest.mark.parametrize("version", versions(INIT))
    async def test_without_an_id_it_is_a_fresh_producer_p1(self, version: int, autojump_clock: MockClock) -> None:
        """Row P1; the timeout does not matter then. Ids begin at 1 (section 0, row 23)."""
        async with running() as on:
            answers = [await on.init(version, transactional_id=None, transaction_timeout_ms=0) for _ in range(3)]
            assert [(a.error_code, a.producer_id, a.producer_epoch) for a in answers] == [(0, n, 0) for n in (1, 2, 3)]


class TestAddPartitions:
    """Rows T3, T4, T15."""

    @pytest.mark.parametrize("version", versions(24))
    async def test_one_that_is_missing_keeps_all_out(self, version: int, autojump_clock: MockClock) -> None:
        """The answer is per partition: its own error, and OPERATION_NOT_ATTEMPTED for the rest."""
        async with running() as on:
            held = await on.identity()
            expected = [E.OPERATION_NOT_ATTEMPTED, E.UNKNOWN_TOPIC_OR_PARTITION, E.OPERATION_NOT_ATTEMPTED]
            assert await on.add(version, held, T0, GONE, T1) == expected
            assert (await on.end(4, held, commit=True)).error_code == E.INVALID_TXN_STATE, "nothing was begun"

    @pytest.mark.parametrize("version", versions(24))
    async def test_a_foreign_producer_id_is_no_mapping(self, version: int, autojump_clock: MockClock) -> None:
        async with running() as on:
            producer_id, epoch = await on.identity()
            assert await on.add(version, (producer_id + 1, epoch), T0) == [E.INVALID_PRODUCER_ID_MAPPING]

    @pytest.mark.parametrize("version", versions(24, since=4))
    async def test_verify_only_finds_what_is_there_and_adds_nothing(
        self, version: int, autojump_clock: MockClock
    ) -> None:
        """v5 knows TRANSACTION_ABORTABLE, v4 hears INVALID_TXN_STATE."""
        async with running() as on:
            held = await on.identity()
            lacking = E.TRANSACTION_ABORTABLE if version >= 5 else E.INVALID_TXN_STATE
            assert await on.add(version, held, T0, verify=True) == [lacking]
            assert await on.add(version, held, T0) == [E.NONE]
            before = len(on.state_bytes())
            assert await on.add(version, held, T0, T1, verify=True) == [E.NONE, lacking]
            assert await on.add(version, held, T0) == [E.NONE]
            assert len(on.state_bytes()) == before, "what is there costs no record"

    @pytest.mark.parametrize("version", versions(24, since=4))
    async def test_a_batch_answers_each_transaction_by_itself_t15(
        self, version: int, autojump_clock: MockClock
    ) -> None:
        """One is added to, one verified, one fenced, one unknown: none has a say in another's answer."""
        async with running() as on:
            held = {name: await on.identity(transactional_id=name) for name in ("adds", "asks", "late")}
            await on.identity(transactional_id="late")
            transactions = [
                AddPartitionsToTxnTransaction(
                    transactional_id=name,
                    producer_id=held.get(name, (99, 0))[0],
                    producer_epoch=held.get(name, (99, 0))[1],
                    verify_only=name == "asks",
                    topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
                )
                for name in ("adds", "asks", "late", "never")
            ]
            answer = await on.ask(24, version, AddPartitionsToTxnRequest(transactions=transactions))
            codes = {
                result.transactional_id: result.topic_results[0].results_by_partition[0].partition_error_code
                for result in answer.results_by_transaction
            }
            assert codes == {
                "adds": E.NONE,
                "asks": E.TRANSACTION_ABORTABLE if version >= 5 else E.INVALID_TXN_STATE,
                "late": E.PRODUCER_FENCED,
                "never": E.INVALID_PRODUCER_ID_MAPPING,
            }

    @pytest.mark.parametrize("version", versions(25))
    async def test_offsets_join_by_their_partition_t4(self, version: int, autojump_clock: MockClock) -> None:
        async with running() as on:
            held = await on.identity()
            assert await add_offsets(on, version, held) == E.NONE
            group = TopicPartition("__consumer_offsets", partition_for("readers", 50))
            assert await on.add(5, held, group, verify=True) == [E.NONE]


class TestVerification:
    """Rows T15 to T17 (KIP-890 part 1): a transactional write to a partition that the transaction does not have."""

    @pytest.mark.parametrize("version", [v for v in versions(0) if v < 12])
    async def test_an_old_producers_write_is_refused(self, version: int, autojump_clock: MockClock) -> None:
        """The code by version; the same write is taken once the partition has joined."""
        lacking = E.TRANSACTION_ABORTABLE if version >= 11 else E.INVALID_TXN_STATE
        async with running() as on:
            held = await on.identity()
            assert await on.produce(version, held, T0, b"x", 0) == lacking
            assert await on.add(3, held, T1) == [E.NONE]
            assert await on.produce(version, held, T0, b"x", 0) == lacking
            assert await on.markers(T0) == []
            assert await on.add(3, held, T0) == [E.NONE]
            assert await on.produce(version, held, T0, b"x", 0) == E.NONE

    @pytest.mark.parametrize("version", [v for v in versions(0) if v >= 12])
    async def test_a_new_producers_write_joins_by_itself(self, version: int, autojump_clock: MockClock) -> None:
        async with running() as on:
            held = await on.identity()
            assert await on.produce(version, held, T0, b"x", 0) == E.NONE
            assert (await on.end(5, held, commit=True)).error_code == E.NONE
            assert await on.committed(T0) == [b"x"]

    @pytest.mark.parametrize("version", versions(0))
    async def test_what_every_version_hears_of_a_transaction_under_completion(
        self, version: int, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """CONCURRENT_TRANSACTIONS is NOT_ENOUGH_REPLICAS below v12: old clients come again on that one."""
        async with running() as on:
            held = await on.identity()
            assert await on.add(3, held, T0) == [E.NONE]
            with stuck_markers(on, monkeypatch):
                ended = await on.end(4, held, commit=True)
                assert ended.error_code == E.NONE
                expected = E.CONCURRENT_TRANSACTIONS if version >= 12 else E.NOT_ENOUGH_REPLICAS
                assert await on.produce(version, held, T0, b"x", 0) == expected

    @pytest.mark.parametrize("version", [3, 11])
    async def test_it_can_be_switched_off_at_run_time(self, version: int, autojump_clock: MockClock) -> None:
        """`transaction.partition.verification.enable` is a dynamic setting, as in Kafka."""
        name = "transaction.partition.verification.enable"
        lacking = E.TRANSACTION_ABORTABLE if version >= 11 else E.INVALID_TXN_STATE
        async with running() as on:
            held = await on.identity()
            assert await on.produce(version, held, T0, b"x", 0) == lacking
            await alter_broker(on, name, "false")
            assert await on.produce(version, held, T0, b"x", 0) == E.NONE
            await alter_broker(on, name, "true")
            assert await on.produce(version, held, T1, b"x", 0) == lacking


class TestEmptyTransactions:
    """Row T24: an end without any partition."""

    @pytest.mark.parametrize("version", versions(26))
    async def test_after_init(self, version: int, autojump_clock: MockClock) -> None:
        """TV2 may abort nothing, which bumps the epoch, and may not commit it; before, neither."""
        async with running() as on:
            held = await on.identity()
            assert (await on.end(version, held, commit=True)).error_code == E.INVALID_TXN_STATE
            answer = await on.end(version, held, commit=False)
            if version < 5:
                assert answer.error_code == E.INVALID_TXN_STATE
                return
            bumped = (held[0], held[1] + 1)
            assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (E.NONE, *bumped)
            again = await on.end(version, held, commit=False)
            assert (again.error_code, again.producer_id, again.producer_epoch) == (E.NONE, *bumped)
            assert (await on.end(version, held, commit=True)).error_code == E.PRODUCER_FENCED, "KAFKA-20785"
            assert await on.produce(12, bumped, T0, b"x", 0) == E.NONE


class TestFindCoordinator:
    """Row T1."""

    @pytest.mark.parametrize("version", versions(10, since=1))
    async def test_it_is_this_node(self, version: int, autojump_clock: MockClock) -> None:
        async with running() as on:
            request = FindCoordinatorRequest(key=TX, key_type=1, coordinator_keys=[TX])
            answer = await on.ask(10, version, request)
            told = answer.coordinators[0] if version >= 4 else answer
            assert (told.error_code, told.node_id, told.host, told.port) == (E.NONE, 1, "host", 9092)
