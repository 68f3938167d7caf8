"""Transactions against scripted answers: what is sent in TV1 and TV2, and what every ending means (rows T3 to T17)."""

import random
from collections.abc import Callable
from typing import Any, Literal

import pytest
import trio

import fencepost
from fencepost import AbortableError, ErrorCode, FencedError, OutcomeUnknownError, RecordRejectedError
from fencepost.protocol.messages.api26_end_txn import EndTxnResponse
from tests.kit.scripted_broker import HANG_UP, SILENCE, ScriptedBroker

Script = Callable[..., Any]
TALK = ("InitProducerId", "AddPartitionsToTxn", "Produce", "EndTxn")


def client(broker: ScriptedBroker, **options: Any) -> fencepost.Client:
    return fencepost.Client(broker.address, random=random.Random(1), **{"retry_backoff": 0.001, **options})


async def give_up(
    producer: fencepost.TransactionalProducer, value: bytes, *, sent: Callable[[], object] | Literal[True] = True
) -> None:
    """A transaction whose block ends with an exception, its record sent, or on its way as far as `sent` says."""
    async with producer.transaction() as txn:
        await txn.send("t", value)
        if sent is True:
            await producer.flush()
        else:
            while not sent():  # noqa: ASYNC110 - nobody tells
                await trio.sleep(0.01)
        raise ZeroDivisionError


def versions(broker: ScriptedBroker, name: str) -> set[int]:
    return {version for api, version, _ in broker.requests if api == name}


async def test_tv2_adds_nothing_and_takes_its_epoch_from_each_end(script: Script) -> None:
    """T16: Produce v12+ and EndTxn v5, no AddPartitionsToTxn; the answer's epoch is the next transaction's."""
    broker = await script()
    async with client(broker) as kafka, kafka.transactional_producer("id") as producer:
        for value in (b"a", b"b"):
            async with producer.transaction() as txn:
                await txn.send("t", value)
    assert broker.names(*TALK) == ["InitProducerId", "Produce", "EndTxn", "Produce", "EndTxn"]
    assert min(versions(broker, "Produce")) >= 12
    assert versions(broker, "EndTxn") == {5}
    assert [batch.place for batch in broker.batches] == [(1, 0), (2, 0)]
    assert all(batch.header.is_transactional for batch in broker.batches)


@pytest.mark.parametrize(
    "lacking",
    [{"transaction_version": 1}, {"transaction_version": 0}, {"highest": {"EndTxn": 4}}, {"highest": {"Produce": 11}}],
)
async def test_tv1_where_any_part_of_tv2_is_missing(script: Script, lacking: dict[str, Any]) -> None:
    """T16: Produce v12 would mean TV2 to the broker, so TV1 stays below; every partition is added first."""
    broker = await script(partitions=2, transaction_version=lacking.get("transaction_version", 2))
    broker.highest = lacking.get("highest", {})
    async with client(broker) as kafka, kafka.transactional_producer("id") as producer:
        async with producer.transaction() as txn:
            await txn.send("t", b"a", partition=0)
            await txn.send("t", b"b", partition=1)
        async with producer.transaction() as txn:
            await txn.send("t", b"c", partition=0)
    talk = broker.names(*TALK)
    assert talk[:2] == ["InitProducerId", "AddPartitionsToTxn"]
    assert talk.count("EndTxn") == 2
    assert max(versions(broker, "Produce")) <= 11
    assert max(versions(broker, "EndTxn")) <= 4
    assert max(versions(broker, "AddPartitionsToTxn")) <= 3
    assert sorted(batch.place for batch in broker.batches) == [(1, 0), (1, 0), (1, 1)], "TV1 keeps epoch and sequence"


async def test_tv1_sends_nothing_of_a_partition_before_it_is_added(script: Script) -> None:
    """T3: also when adding it has to be tried again because the last transaction's markers are still being written."""
    broker = await script(transaction_version=1)
    later = [lambda request, version: broker.added(request, ErrorCode.CONCURRENT_TRANSACTIONS)]
    broker.scripts["AddPartitionsToTxn"] = later * 3
    async with client(broker) as kafka, kafka.transactional_producer("id") as producer, producer.transaction() as txn:
        await txn.send("t", b"a")
    assert broker.names(*TALK) == ["InitProducerId"] + ["AddPartitionsToTxn"] * 4 + ["Produce", "EndTxn"]


async def test_an_empty_transaction_asks_no_broker(script: Script) -> None:
    broker = await script()
    async with client(broker) as kafka, kafka.transactional_producer("id") as producer, producer.transaction():
        pass
    assert broker.names(*TALK) == ["InitProducerId"]


async def test_an_exception_in_the_block_aborts_and_comes_out_as_it_is(script: Script) -> None:
    broker = await script()
    async with client(broker) as kafka, kafka.transactional_producer("id") as producer:
        with pytest.raises(ZeroDivisionError):
            await give_up(producer, b"a")
        async with producer.transaction() as txn:
            await txn.send("t", b"b")
    ends = [request.committed for name, _, request in broker.requests if name == "EndTxn"]
    assert ends == [False, True]


async def test_a_record_that_fails_makes_the_commit_abort(script: Script) -> None:
    """The end of the block waits for every record; one that is rejected aborts the whole (KIP-1050)."""
    broker = await script()
    broker.scripts["Produce"] = [broker.refuse(ErrorCode.INVALID_RECORD)]
    async with client(broker) as kafka, kafka.transactional_producer("id") as producer:
        with pytest.raises(RecordRejectedError) as rejected:
            async with producer.transaction() as txn:
                await txn.send("t", b"a")
        assert rejected.value.code is ErrorCode.INVALID_RECORD
        assert [record.value for record in rejected.value.records] == [b"a"]
        async with producer.transaction() as txn:
            await txn.send("t", b"b")
    assert [request.committed for name, _, request in broker.requests if name == "EndTxn"] == [False, True]
    assert broker.batches[-1].place == (2, 0)


async def test_a_commit_whose_answer_is_lost_is_asked_for_again(script: Script) -> None:
    """T7, T16: TV2 answers a repeated EndTxn with the epoch it gave the first time."""
    broker = await script()
    broker.scripts["EndTxn"] = [HANG_UP]
    async with client(broker) as kafka, kafka.transactional_producer("id") as producer:
        async with producer.transaction() as txn:
            await txn.send("t", b"a")
        async with producer.transaction() as txn:
            await txn.send("t", b"b")
    assert broker.names(*TALK) == ["InitProducerId", "Produce", "EndTxn", "EndTxn", "Produce", "EndTxn"]


async def test_tv1_takes_a_new_epoch_after_a_commit_was_asked_for_twice(script: Script) -> None:
    """KAFKA-17754: the first EndTxn may still arrive and end the next transaction, unless its epoch is over by then."""
    broker = await script(transaction_version=1)
    broker.scripts["EndTxn"] = [HANG_UP]
    async with client(broker) as kafka, kafka.transactional_producer("id") as producer:
        async with producer.transaction() as txn:
            await txn.send("t", b"a")
        async with producer.transaction() as txn:
            await txn.send("t", b"b")
    talk = broker.names("InitProducerId", "EndTxn")
    assert talk == ["InitProducerId", "EndTxn", "EndTxn", "InitProducerId", "EndTxn"]
    inits = [request for name, _, request in broker.requests if name == "InitProducerId"]
    assert (inits[1].producer_id, inits[1].producer_epoch) == (7, 1)
    assert broker.batches[-1].place == (2, 0)


@pytest.mark.parametrize(
    ("said", "committed"),
    [(ErrorCode.NONE, True), (ErrorCode.INVALID_TXN_STATE, False), (ErrorCode.PRODUCER_FENCED, False)],
)
async def test_a_commit_without_an_answer_is_an_unknown_outcome(
    script: Script, said: ErrorCode, committed: bool, autojump_clock: trio.testing.MockClock
) -> None:
    """`reinitialise` asks for the same commit until the coordinator tells what became of it (P6, T16, KIP-588)."""
    broker = await script()
    broker.scripts["EndTxn"] = [SILENCE] * 3
    options = {"request_timeout": 0.1, "default_api_timeout": 0.25}
    async with client(broker, **options) as kafka, kafka.transactional_producer("id") as producer:
        with pytest.raises(OutcomeUnknownError) as unknown:
            async with producer.transaction() as txn:
                await txn.send("t", b"a")
        assert (unknown.value.api, unknown.value.node) == ("EndTxn", 1)
        with pytest.raises(OutcomeUnknownError, match="reinitialise"):
            async with producer.transaction():
                pass
        broker.scripts["EndTxn"] = [] if committed else [EndTxnResponse(error_code=said)]
        assert await producer.reinitialise() is committed
        assert await producer.reinitialise() is None, "nothing is open any more"
        async with producer.transaction() as txn:
            await txn.send("t", b"b")
    ends = [(request.producer_epoch, request.committed) for name, _, request in broker.requests if name == "EndTxn"]
    assert all(end == (1, True) for end in ends[:3])
    assert ends[-1] == (2, True)
    if not committed:
        assert (1, False) in ends, "the abort of the same epoch tells that nobody newer is there"


async def test_a_refusal_after_a_lost_commit_is_still_an_unknown_outcome(script: Script) -> None:
    """The lost attempt may have committed before somebody newer fenced us."""
    broker = await script()
    broker.scripts["EndTxn"] = [HANG_UP] + [EndTxnResponse(error_code=ErrorCode.PRODUCER_FENCED)] * 2
    async with client(broker) as kafka, kafka.transactional_producer("id") as producer:
        with pytest.raises(OutcomeUnknownError):
            async with producer.transaction() as txn:
                await txn.send("t", b"a")
        with pytest.raises(FencedError):
            await producer.reinitialise()


async def test_a_fenced_producer_says_so_and_stays_out(script: Script) -> None:
    broker = await script()
    async with client(broker) as kafka, kafka.transactional_producer("id") as producer:
        broker.scripts["EndTxn"] = [EndTxnResponse(error_code=ErrorCode.PRODUCER_FENCED)] * 2
        with pytest.raises(FencedError) as fenced:
            async with producer.transaction() as txn:
                await txn.send("t", b"a")
        assert (fenced.value.code, fenced.value.api, fenced.value.node) == (ErrorCode.PRODUCER_FENCED, "EndTxn", 1)
        with pytest.raises(FencedError):
            async with producer.transaction():
                pass
    assert broker.names("InitProducerId") == ["InitProducerId"], "asking with a stale identity would disturb the newer"


async def test_a_transaction_that_only_timed_out_is_abortable(script: Script) -> None:
    """T10, P6: the coordinator bumped the epoch when it aborted; our (id, epoch) is still known as the last one."""
    broker = await script()
    async with client(broker) as kafka, kafka.transactional_producer("id") as producer:
        broker.scripts["EndTxn"] = [EndTxnResponse(error_code=ErrorCode.PRODUCER_FENCED)]
        with pytest.raises(AbortableError, match="longer than its timeout"):
            async with producer.transaction() as txn:
                await txn.send("t", b"a")
        async with producer.transaction() as txn:
            await txn.send("t", b"b")
    assert broker.logs[0] == [b"a", b"b"]


async def test_a_stale_epoch_on_produce_is_settled_by_the_end_of_the_transaction(script: Script) -> None:
    """T11 (KIP-588): INVALID_PRODUCER_EPOCH alone does not tell a newer producer from a timeout."""
    broker = await script()
    async with client(broker) as kafka, kafka.transactional_producer("id") as producer:
        broker.scripts["Produce"] = [broker.refuse(ErrorCode.INVALID_PRODUCER_EPOCH)] * 2
        with pytest.raises(AbortableError):
            async with producer.transaction() as txn:
                await txn.send("t", b"a")
        broker.scripts["EndTxn"] = [EndTxnResponse(error_code=ErrorCode.PRODUCER_FENCED)]
        with pytest.raises(FencedError):
            async with producer.transaction() as txn:
                await txn.send("t", b"b")


async def test_cancelling_aborts_within_a_shield(script: Script) -> None:
    broker = await script()
    async with client(broker) as kafka, kafka.transactional_producer("id") as producer:
        with trio.CancelScope() as scope:
            async with producer.transaction() as txn:
                await txn.send("t", b"a")
                await producer.flush()
                scope.cancel()
                await trio.sleep_forever()
        assert scope.cancelled_caught
        assert txn.committed is False
        assert [request.committed for name, _, request in broker.requests if name == "EndTxn"] == [False]
        async with producer.transaction() as txn:
            await txn.send("t", b"b")


async def test_cancelling_the_whole_program_still_aborts(script: Script) -> None:
    """The connections outlive the cancellation until the client is closed."""
    broker = await script()
    with trio.CancelScope() as scope:
        async with (
            client(broker) as kafka,
            kafka.transactional_producer("id") as producer,
            producer.transaction() as txn,
        ):
            await txn.send("t", b"a")
            await producer.flush()
            scope.cancel()
            await trio.sleep_forever()
    assert [request.committed for name, _, request in broker.requests if name == "EndTxn"] == [False]


async def test_a_cancelled_commit_is_waited_for_and_its_outcome_told(
    script: Script, autojump_clock: trio.testing.MockClock
) -> None:
    """A commit that is under way cannot be taken back: five seconds of grace, then the outcome is unknown."""
    broker = await script()
    broker.scripts["EndTxn"] = [SILENCE] * 2
    async with client(broker) as kafka, kafka.transactional_producer("id") as producer:
        began = trio.current_time()
        with pytest.raises(OutcomeUnknownError), trio.move_on_after(1):
            async with producer.transaction() as txn:
                await txn.send("t", b"a")
        assert 5.5 < trio.current_time() - began < 8
        assert txn.committed is None, "nobody knows yet"
        assert await producer.reinitialise() is True
        assert txn.committed is True


async def test_a_commit_that_is_cancelled_and_answered_within_the_grace_has_happened(
    script: Script, autojump_clock: trio.testing.MockClock
) -> None:
    """It is asked for again; the program still hears of its cancellation, and the transaction tells how it ended."""
    broker = await script()
    broker.scripts["EndTxn"] = [SILENCE]
    async with client(broker) as kafka, kafka.transactional_producer("id") as producer:
        with trio.move_on_after(1) as scope:
            async with producer.transaction() as txn:
                await txn.send("t", b"a")
                assert txn.committed is None
        assert scope.cancelled_caught
        assert txn.committed is True
        async with producer.transaction() as txn:
            await txn.send("t", b"b")
    ends = [(request.producer_epoch, request.committed) for name, _, request in broker.requests if name == "EndTxn"]
    assert ends == [(1, True), (1, True), (2, True)]


@pytest.mark.parametrize(("version", "asked"), [(2, "EndTxn"), (1, "InitProducerId")])
async def test_an_abort_without_an_answer_leads_to_a_new_epoch_first(
    script: Script, autojump_clock: trio.testing.MockClock, version: int, asked: str
) -> None:
    """A late EndTxn(abort) must not end the next transaction: TV2 asks until it is answered, TV1 for a new epoch."""
    broker = await script(transaction_version=version)
    broker.scripts["EndTxn"] = [SILENCE]
    async with client(broker) as kafka, kafka.transactional_producer("id") as producer:
        with pytest.raises(ZeroDivisionError):
            await give_up(producer, b"a")
        async with producer.transaction() as txn:
            await txn.send("t", b"b")
    assert broker.names("InitProducerId", "EndTxn") == ["InitProducerId", "EndTxn", asked, "EndTxn"]
    assert broker.batches[-1].place[0] == 2


async def test_an_aborted_transactions_records_never_reach_the_next_one(
    script: Script, autojump_clock: trio.testing.MockClock
) -> None:
    """A batch whose answer never came belongs to the transaction that is over, not to the one that is open."""
    broker = await script()
    broker.scripts["Produce"] = [SILENCE]
    async with client(broker) as kafka, kafka.transactional_producer("id") as producer:
        with pytest.raises(ZeroDivisionError):
            await give_up(producer, b"old", sent=lambda: broker.batches)
        async with producer.transaction() as txn:
            await txn.send("t", b"new")
    assert broker.logs[0] == [b"new"]
    assert [batch.values for batch in broker.batches] == [[b"old"], [b"new"]]


async def test_only_one_transaction_at_a_time(script: Script) -> None:
    broker = await script()
    async with client(broker) as kafka, kafka.transactional_producer("id") as producer:
        async with producer.transaction() as txn:
            await txn.send("t", b"a")
            with pytest.raises(RuntimeError, match="already open"):
                async with producer.transaction():
                    pass
        with pytest.raises(RuntimeError, match="over"):
            await txn.send("t", b"b")


async def test_a_task_that_sends_while_the_transaction_ends_is_refused(script: Script) -> None:
    """Under TV2 a record behind EndTxn would open a transaction that nobody ends."""
    broker = await script()
    refused = []
    async with client(broker) as kafka, kafka.transactional_producer("id") as producer, trio.open_nursery() as nursery:

        async def meddle(txn: fencepost.Transaction) -> None:
            try:
                for _ in range(10_000):
                    await txn.send("t", b"x")
                    await trio.lowlevel.checkpoint()
            except RuntimeError as error:
                refused.append(str(error))

        async with producer.transaction() as txn:
            await txn.send("t", b"a")
            nursery.start_soon(meddle, txn)
            await trio.sleep(0.01)
    assert refused == ["the transaction is over"]
    talk = broker.names("Produce", "EndTxn")
    assert talk.count("EndTxn") == 1
    assert talk[-1] == "EndTxn"
