"""The client's two-phase producer against a real broker (rows T22, T23; KIP-939)."""

import sqlite3
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import fencepost
import fencepost.sync
from examples.two_phase_commit import Bridge, Decisions, TakenOver
from fencepost import AuthorizationError, FatalError, FencedError, PreparedTransaction
from fencepost.protocol.errors import ErrorCode
from tests.kit.broker_process import BrokerProcess

SETTINGS = {"unstable.api.versions.enable": "true", "transaction.two.phase.commit.enable": "true"}
ID = "bridge"


class Boom(Exception):
    """What goes wrong in a block."""


@pytest.fixture(scope="module")
def two_phase_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("two-phase"), settings=SETTINGS) as broker:
        yield broker


async def committed(kafka: fencepost.Client, topic: str, count: int) -> list[bytes]:
    """The first `count` values that a read_committed reader sees."""
    seen: list[bytes] = []
    async with kafka.consumer(topic) as consumer:
        while len(seen) < count:
            async for batch in consumer.batches(max_wait=0.05):
                seen += [record.value for record in batch]
                break
    return seen


@pytest.mark.parametrize("commit", [True, False])
async def test_after_prepare_only_the_decision_counts(two_phase_broker: BrokerProcess, commit: bool) -> None:
    """An error in the block, after `prepare`, neither commits nor aborts; nor can anything else begin."""
    topic = f"decision-{commit}"
    async with fencepost.Client(two_phase_broker.address) as kafka, kafka.two_phase_producer(topic) as producer:
        with pytest.raises(Boom):  # noqa: PT012 - the whole block is what fails
            async with producer.transaction() as txn:
                await txn.send(topic, b"a")
                prepared = await txn.prepare()
                with pytest.raises(RuntimeError, match="over"):
                    await txn.send(topic, b"b")
                raise Boom
        assert producer.prepared == prepared == PreparedTransaction.parse(str(prepared))
        with pytest.raises(RuntimeError, match="prepared"):
            async with producer.transaction():
                pass
        with pytest.raises(RuntimeError, match="open"):
            await producer.reinitialise()
        for mangled in (f"b'{prepared}'", "", str(prepared.producer_id)):
            with pytest.raises(ValueError, match=r"unpack|invalid literal"):
                await producer.complete(mangled)
        assert producer.prepared == prepared, "no decision was made for what nobody can read"
        assert await producer.complete(str(prepared) if commit else "7:7") is commit
        assert await producer.complete(prepared) is False, "there is nothing more to complete"
        async with producer.transaction() as txn:
            await txn.send(topic, b"next")
        assert await committed(kafka, topic, 1 + commit) == [b"a", b"next"][not commit :]


@pytest.mark.parametrize("commit", [True, False])
async def test_the_block_may_complete_it_itself(two_phase_broker: BrokerProcess, commit: bool) -> None:
    """What was decided and carried out inside the block is not ended once more at its end."""
    topic = f"inside-{commit}"
    async with fencepost.Client(two_phase_broker.address) as kafka, kafka.two_phase_producer(topic) as producer:
        async with producer.transaction() as txn:
            await txn.send(topic, b"a")
            prepared = await txn.prepare()
            assert txn.committed is None
            assert await producer.complete(prepared if commit else None) is commit
        assert txn.committed is commit
        async with producer.transaction() as txn:
            await txn.send(topic, b"next")
        assert await committed(kafka, topic, 1 + commit) == [b"a", b"next"][not commit :]


async def test_an_error_before_prepare_aborts_as_always(two_phase_broker: BrokerProcess) -> None:
    async with fencepost.Client(two_phase_broker.address) as kafka, kafka.two_phase_producer("before") as producer:
        with pytest.raises(Boom):  # noqa: PT012 - the whole block is what fails
            async with producer.transaction() as txn:
                await txn.send("before", b"a")
                raise Boom
        assert producer.prepared is None
        async with producer.transaction() as txn:
            await txn.send("before", b"b")
            await txn.prepare()
        assert await committed(kafka, "before", 1) == [b"b"]


async def test_each_prepared_transaction_looks_different(two_phase_broker: BrokerProcess) -> None:
    """Also one that nothing was written in: its decision must not be taken for that of the next one."""
    async with fencepost.Client(two_phase_broker.address) as kafka, kafka.two_phase_producer("different") as producer:
        seen = []
        for values in ([], [b"a"], [], [b"b"]):
            async with producer.transaction() as txn:
                for value in values:
                    await txn.send("different", value)
                seen.append(await txn.prepare())
        assert len(set(seen)) == 4


async def test_a_successor_finds_what_was_prepared_and_its_predecessor_is_fenced(
    two_phase_broker: BrokerProcess,
) -> None:
    async with fencepost.Client(two_phase_broker.address) as kafka, kafka.two_phase_producer("heir") as first:
        with pytest.raises(Boom):  # noqa: PT012 - the whole block is what fails
            async with first.transaction() as txn:
                await txn.send("heir", b"a")
                prepared = await txn.prepare()
                raise Boom
        async with kafka.two_phase_producer("heir") as second:
            assert second.prepared == prepared
            assert second.identity > first.identity
            with pytest.raises(FencedError):
                await first.complete(prepared)
            assert await second.complete(prepared)
        assert await committed(kafka, "heir", 1) == [b"a"]


async def test_who_was_taken_for_dead_can_not_decide_any_more(two_phase_broker: BrokerProcess, tmp_path: Path) -> None:
    """The recipe's owner column: without it the database would commit what the successor has aborted in Kafka."""
    connect = partial(sqlite3.connect, tmp_path / "db")
    done: list[str] = []
    async with fencepost.Client(two_phase_broker.address) as kafka:
        async with kafka.two_phase_producer("zombie") as sleeper:
            decisions = Decisions(connect, "zombie")
            bridge = Bridge(sleeper, decisions)
            await bridge.recover()
            with pytest.raises(TakenOver):  # noqa: PT012 - the whole block is what fails
                async with sleeper.transaction() as txn:
                    await txn.send("zombie", b"a")
                    prepared = await txn.prepare()
                    async with kafka.two_phase_producer("zombie") as successor:
                        assert await Bridge(successor, Decisions(connect, "zombie")).recover() is False
                    decisions.commit(prepared, lambda cursor: done.append("worked"), lambda _: None)
            with pytest.raises(FencedError):
                await sleeper.complete(None)
        async with kafka.two_phase_producer("zombie") as producer:
            assert producer.prepared is None
            async with producer.transaction() as txn:
                await txn.send("zombie", b"b")
        assert await committed(kafka, "zombie", 1) == [b"b"]
    with sqlite3.connect(tmp_path / "db") as connection:
        assert connection.execute("SELECT decided FROM kafka_decisions").fetchall() == [(None,)]
    connection.close()


def test_the_blocking_client_does_it_too(two_phase_broker: BrokerProcess) -> None:
    """The same names, without trio."""
    with fencepost.sync.Client(two_phase_broker.address) as kafka:
        with kafka.two_phase_producer("blocking") as first, pytest.raises(Boom), first.transaction() as txn:  # noqa: PT012
            txn.send("blocking", b"a")
            prepared = txn.prepare()
            raise Boom
        with kafka.two_phase_producer("blocking") as second:
            assert second.prepared == prepared
            assert second.identity > str(prepared)
            assert second.complete(str(prepared))
            assert second.prepared is None


async def test_a_broker_that_does_not_allow_it_says_so(address: str, tmp_path: Path) -> None:
    """Without unstable versions there is no v6; without the broker's leave it is refused (row T22)."""
    async with fencepost.Client(address) as kafka:
        with pytest.raises(FatalError) as refused:
            async with kafka.two_phase_producer(ID):
                pass
        assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
    with BrokerProcess(tmp_path / "half", settings={"unstable.api.versions.enable": "true"}) as broker:
        async with fencepost.Client(broker.address) as kafka:
            with pytest.raises(AuthorizationError):
                async with kafka.two_phase_producer(ID):
                    pass


async def test_an_ordinary_producer_does_not_prepare(two_phase_broker: BrokerProcess) -> None:
    async with (
        fencepost.Client(two_phase_broker.address) as kafka,
        kafka.transactional_producer("ordinary") as producer,
    ):
        with pytest.raises(RuntimeError, match="two_phase_producer"):
            async with producer.transaction() as txn:
                await txn.prepare()
