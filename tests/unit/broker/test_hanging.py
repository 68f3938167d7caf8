"""Row T20: what hangs is found with proof and aborted where that is wanted; what lives is never touched."""

import logging
import random
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from fencepost.broker.coordinator_logs import LogTicket
from fencepost.broker.transactions.hanging import Hanging, HangingCheck
from fencepost.coordinator.txn.coordinator import TransactionCoordinator
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from fencepost.protocol.topics import TopicPartition
from tests.unit.broker.txn_node import (
    ABORTING,
    MARKERS,
    MINUTE_S,
    QUICK,
    TX,
    Identity,
    TxnNode,
    alter_broker,
    hang,
    running,
    stuck_markers,
)

MockClock = trio.testing.MockClock
E = ErrorCode
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


def lso(on: TxnNode, partition: TopicPartition = T0) -> int:
    log = on.node.partition(partition)
    assert log is not None
    return log.last_stable_offset


def reported(on: TxnNode) -> list[Hanging]:
    """What the last look found."""
    return list(on.node.hanging.hanging)


class TestWhatHangs:
    async def test_is_reported_once_and_left_alone_by_default(
        self, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with running(*QUICK) as on:
            held = await hang(on)
            await trio.sleep(2 * MINUTE_S)
            assert reported(on) == []
            await trio.sleep(5 * MINUTE_S)
            [found] = reported(on)
            assert found.open == (T0, *held, 0)
            assert (
                found.coordinator_says == f"{TX!r} has this producer id, is in Empty and does not have this partition"
            )
            assert (lso(on), on.node.hanging.aborted) == (0, 0)
            [line] = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
            assert "fencepost txn hanging --topic t --partition 0 --repair" in line

    async def test_is_aborted_where_that_is_wanted(
        self, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        """By an ABORT marker of its own epoch, as Kafka's tool writes it, and with a line for the audit."""
        async with running(*QUICK) as on:
            held = await hang(on)
            await trio.sleep(5 * MINUTE_S)
            assert lso(on) == 0
            await alter_broker(on, "transaction.hanging.abort", "true")
            await trio.sleep(20)
            assert (lso(on), on.node.hanging.aborted) == (2, 1)
            assert await on.markers(T0) == [("ABORT", held[1])]
            [line] = [r.getMessage() for r in caplog.records if r.name == "fencepost.audit"]
            assert "HANGING_TRANSACTION result=aborted partition=t-0" in line
            assert "proof=open and unknown for" in line
            await trio.sleep(MINUTE_S)
            assert (on.node.hanging.aborted, on.node.hanging.hanging) == (1, ())

    async def test_one_of_an_unknown_producer(
        self, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with running(*ABORTING) as on:
            assert await on.produce(11, (4711, 3), T0, b"foreign", 0) == E.NONE
            await trio.sleep(2 * MINUTE_S + 5)
            await trio.sleep(30)
            assert (lso(on), on.node.hanging.aborted) == (2, 1)
            [line] = [r.getMessage() for r in caplog.records if r.name == "fencepost.audit"]
            assert line.endswith("no transactional id has this producer id")

    async def test_beside_an_open_transaction_of_the_same_producer(self, autojump_clock: MockClock) -> None:
        """An entry without that partition: only there it hangs, and where it lives it goes on."""
        async with running(*ABORTING) as on:
            held = await hang(on, T0)
            for number in range(4):
                assert await on.add(3, held, T1) == [E.NONE]
                assert await on.produce(11, held, T1, b"a", number) == E.NONE
                await trio.sleep(50)
                assert (await on.end(3, held, commit=True)).error_code == E.NONE
            assert on.node.hanging.aborted == 1
            assert [kind for kind, _ in await on.markers(T0)] == ["ABORT"]
            assert {kind for kind, _ in await on.markers(T1)} == {"COMMIT"}

    async def test_the_clock_starts_anew_when_it_is_another_one(self, autojump_clock: MockClock) -> None:
        """The same producer's next hang has a first offset of its own, and as long to prove itself."""
        async with running(*QUICK) as on:
            held = await hang(on)
            await trio.sleep(100)
            assert await on.mark(1, held, T0, commit=False) == E.NONE
            assert await on.produce(11, held, T0, b"again", 1) == E.NONE
            await trio.sleep(100)
            assert reported(on) == []
            await trio.sleep(60)
            assert [found.open.first_offset for found in reported(on)] == [2]


class TestWhatLives:
    async def test_a_two_phase_commit_may_wait_for_hours(self, autojump_clock: MockClock) -> None:
        """Row T22: no timeout, and no check has anything to say about it."""
        settings = ("transaction.two.phase.commit.enable=true", "unstable.api.versions.enable=true")
        async with running(*ABORTING, *settings) as on:
            answer = await on.init(6, transaction_timeout_ms=60_000, enable2_pc=True)
            held = answer.producer_id, answer.producer_epoch
            assert await on.produce(12, held, T0, b"prepared", 0) == E.NONE
            await trio.sleep(60 * MINUTE_S)
            assert (on.node.hanging.hanging, on.node.hanging.aborted) == ((), 0)
            assert (await on.end(5, held, commit=True)).error_code == E.NONE
            assert await on.committed(T0) == [b"prepared"]

    @pytest.mark.parametrize("commit", [True, False])
    async def test_a_decided_one_whose_markers_can_not_be_written(
        self, commit: bool, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """PREPARE_x owes its markers however long it takes; a committed one is never aborted."""
        async with running(*ABORTING) as on:
            held = await on.identity()
            assert await on.produce(12, held, T0, b"a", 0) == E.NONE
            with stuck_markers(on, monkeypatch):
                assert (await on.end(5, held, commit=commit)).error_code == E.NONE
                await trio.sleep(60 * MINUTE_S)
                assert (on.node.hanging.hanging, await on.markers(T0)) == ((), [])
            await trio.sleep(5)
            assert await on.markers(T0) == [("COMMIT" if commit else "ABORT", held[1] + 1)]

    async def test_one_that_is_rolled_forward_after_a_restart(
        self, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """While the coordinator loads nobody knows what lives; afterwards PREPARE_COMMIT still owns the partition."""
        async with running(*ABORTING) as on:
            held = await on.identity()
            assert await on.produce(12, held, T0, b"a", 0) == E.NONE
            with stuck_markers(on, monkeypatch):
                assert (await on.end(5, held, commit=True)).error_code == E.NONE
                before = on.node.transactions
                again = TransactionCoordinator(
                    logs=before.runtime._logs,
                    markers=on.node.markers,
                    producer_ids=on.node.metadata,
                    topics=on.node.metadata,
                    clock=on.node.clock,
                    config=before.config,
                )
                on.node.transactions = again
                await trio.sleep(30 * MINUTE_S)
                assert not await on.node.hanging.hanging_of({T0}, held[0])
                assert (on.node.hanging.hanging, await on.markers(T0)) == ((), [])
                await again.start()
                async with trio.open_nursery() as nursery:
                    await nursery.start(again.run)
                    await trio.sleep(30 * MINUTE_S)
                    assert (on.node.hanging.hanging, await on.markers(T0)) == ((), [])
                    nursery.cancel_scope.cancel()
            on.node.transactions = before
            await trio.sleep(5)
            assert ("COMMIT", held[1] + 1) in await on.markers(T0)

    async def test_what_a_lost_log_may_know(self, autojump_clock: MockClock) -> None:
        """One unreadable partition of `__transaction_state`, and nothing unknown is proved to hang."""
        async with running(*ABORTING) as on:
            held = await hang(on)
            shard = on.node.transactions.runtime.shards()[0]
            shard.refusal = E.COORDINATOR_NOT_AVAILABLE
            await trio.sleep(60 * MINUTE_S)
            assert (on.node.hanging.hanging, on.node.hanging.aborted) == ((), 0)
            assert not await on.node.hanging.hanging_of({T0}, held[0])
            shard.refusal = E.NONE
            await trio.sleep(3 * MINUTE_S)
            assert on.node.hanging.aborted == 1

    async def test_one_whose_add_is_in_flight(self, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
        """TV2's implied add is not durable yet, its batch not appended: from the decision on the partition is owned.

        The hang on that very partition and producer stays, for the marker of the living transaction ends it.
        """
        async with running(*QUICK) as on:
            held = await hang(on)
            await trio.sleep(5 * MINUTE_S)
            assert await on.node.hanging.hanging_of({T0}, held[0])
            monkeypatch.setattr(LogTicket, "is_durable", False)
            gate = trio.Event()
            monkeypatch.setattr(LogTicket, "durable", lambda _: gate.wait())
            async with trio.open_nursery() as nursery:
                nursery.start_soon(on.add, 3, held, T0)
                await trio.testing.wait_all_tasks_blocked()
                assert not await on.node.hanging.hanging_of({T0}, held[0])
                await alter_broker_quietly(on)
                await on.node.hanging.look()
                assert (on.node.hanging.aborted, await on.markers(T0)) == (0, [])
                gate.set()


async def alter_broker_quietly(on: TxnNode) -> None:
    """Switch the repair on without the metadata log, whose writes stand still in that test."""
    from dataclasses import replace

    on.node.config = replace(on.node.config, transaction_hanging_abort=True)


class TestMarkersOnlyForWhatHangs:
    """Our tag 1000 of WriteTxnMarkers: the proof is made in the moment of the write."""

    async def ask(self, on: TxnNode, held: Identity, version: int = 1) -> int:
        marker = WritableTxnMarker(
            producer_id=held[0],
            producer_epoch=held[1],
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
            only_hanging=True,
        )
        answer = await on.ask(MARKERS, version, WriteTxnMarkersRequest(markers=[marker]))
        code: int = answer.markers[0].topics[0].partitions[0].error_code
        return code

    @pytest.mark.parametrize("version", [1, 2])
    async def test_what_hangs_is_aborted(self, version: int, autojump_clock: MockClock) -> None:
        async with running(*QUICK) as on:
            held = await hang(on)
            assert await self.ask(on, held, version) == E.NONE
            assert lso(on) == 2

    async def test_what_lives_is_refused(self, autojump_clock: MockClock) -> None:
        async with running(*QUICK) as on:
            held = await on.identity()
            assert await on.produce(12, held, T0, b"a", 0) == E.NONE
            assert await self.ask(on, held) == E.INVALID_TXN_STATE
            assert await on.markers(T0) == []
            assert (await on.end(5, held, commit=True)).error_code == E.NONE
            assert await self.ask(on, held) == E.INVALID_TXN_STATE, "nothing is open any more"

    async def test_without_the_tag_it_goes_past_the_coordinator(self, autojump_clock: MockClock) -> None:
        """Row T8: so Kafka's own tool does it, whatever the coordinator believes; the audit says who did."""
        async with running(*QUICK) as on:
            held = await on.identity()
            assert await on.produce(12, held, T0, b"a", 0) == E.NONE
            assert await on.mark(1, held, T0, commit=False) == E.NONE
            assert await on.markers(T0) == [("ABORT", held[1])]


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_lives_is_never_called_hanging(
    seed: int, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Producers of both protocols, newcomers, timeouts, slow disks and slow markers; and looks without any patience."""
    rng = random.Random(seed)
    slow(monkeypatch, rng)
    async with running("transaction.hanging.check.interval.ms=3600000", "transaction.hanging.abort=true") as on:
        check = HangingCheck(on.node)
        write, found = on.node.markers.write_markers, 0

        async def write_slowly(*arguments: Any) -> Any:
            await trio.sleep(rng.random() * 0.2)
            return await write(*arguments)

        monkeypatch.setattr(on.node.markers, "write_markers", write_slowly)
        monkeypatch.setattr(on.node.markers, "append_with_decision", lambda *_: None)
        async with trio.open_nursery() as nursery:
            for number in range(4):
                nursery.start_soon(live, on, rng, number)
            ended, began = on.node.transactions.tallies.ended, trio.current_time()
            # Trio's own dice decide how many come through: as long as it takes for some to commit.
            while trio.current_time() - began < 15 or ended["commit", "client"] <= 3:
                await trio.sleep(rng.random() * 0.04)
                found += len(await check._proved(check._open()))
            nursery.cancel_scope.cancel()
        assert found == 0


def slow(monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> None:
    """Let the coordinator's log take a while until it is durable, so that everything overlaps."""
    durable: Callable[..., Any] = LogTicket.durable

    async def wait(ticket: LogTicket) -> None:
        await trio.sleep(rng.random() * 0.05)
        await durable(ticket)

    monkeypatch.setattr(LogTicket, "durable", wait)
    monkeypatch.setattr(LogTicket, "is_durable", False)


async def live(on: TxnNode, rng: random.Random, number: int) -> None:
    """A producer that begins, writes, ends, is fenced by its like and begins again; two share a transactional id."""
    version = rng.choice([5, 3])
    while True:
        answer = await on.init(5, transaction_timeout_ms=rng.choice([300, 2_000, 60_000]))
        if answer.error_code:
            continue
        held = answer.producer_id, answer.producer_epoch
        for _ in range(rng.randrange(1, 6)):
            for partition in rng.sample([T0, T1, T2], rng.randrange(1, 4)):
                if version == 3 and (await on.add(3, held, partition)) != [E.NONE]:
                    break
                await on.produce(12 if version == 5 else 11, held, partition, b"%d" % number, 0)
                await trio.sleep(rng.random() * 0.1)
            await trio.sleep(rng.choice([0, 0, 0.01, 1.0]))
            answer = await on.end(version, held, commit=rng.random() < 0.7)
            if answer.error_code:
                break
            held = (answer.producer_id, answer.producer_epoch) if version == 5 else held
