"""Each answer 47, 48, 49, 51, 90 and 120 has a recorded cause: who did it, when, with which request."""

import logging
from typing import Any

import pytest
import trio
import trio.testing

from fencepost.coordinator.txn import fencing_history
from fencepost.coordinator.txn.causes import Reason, Refusal
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api65_describe_transactions import DescribeTransactionsRequest
from fencepost.protocol.topics import TopicPartition
from tests.kit.clocks import START_MS
from tests.kit.wire import batch_of, produce_request
from tests.unit.broker.txn_node import (
    PRODUCE,
    TX,
    Identity,
    TxnNode,
    add_offsets,
    commit_offset,
    running,
    stuck_markers,
)

MockClock = trio.testing.MockClock
E = ErrorCode
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
DESCRIBE = 65


def last(on: TxnNode, key: str | int = TX) -> Refusal:
    """The newest refusal of an id."""
    story = on.node.transactions.history.of(key)
    assert story is not None
    return story.refusals[-1]


def counted(on: TxnNode) -> dict[tuple[str, str], int]:
    return {(code.name, why.value): n for (code, why), n in on.node.transactions.history.refused_by.items()}


async def described(on: TxnNode, *, explain: bool = True) -> Any:
    request = DescribeTransactionsRequest(transactional_ids=[TX], explain=explain)
    [state] = (await on.ask(DESCRIBE, 0, request)).transaction_states
    return state


class TestWhoTookTheIdentity:
    async def test_a_newcomer(self, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
        """KIP-98's fence: whose InitProducerId it was, from where, when, and that a transaction was aborted for it."""
        async with running() as on:
            old, new = on.seen_from("old", "10.0.0.7"), on.seen_from("new", "10.0.0.9")
            held = await old.identity()
            assert await old.produce(12, held, T0, b"a", 0) == E.NONE
            await trio.sleep(5)
            await new.identity()
            with caplog.at_level(logging.WARNING):
                assert (await old.end(5, held, commit=True)).error_code == E.PRODUCER_FENCED
            refusal = last(on)
            assert (refusal.code, refusal.shown, refusal.cause.reason) == (E.PRODUCER_FENCED, held, Reason.NEWCOMER)
            assert refusal.cause.text == (
                "InitProducerId v5 of client 'new' at 10.0.0.9 took the id over at 2023-11-14T22:13:25.000Z"
                f" as {held[0]}:{held[1] + 2}; its transaction was aborted"
            )
            assert "EndTxn v5 of client 'old' at 10.0.0.7" in refusal.by
            [line] = [record.getMessage() for record in caplog.records if "refused" in record.getMessage()]
            assert "code=PRODUCER_FENCED" in line
            assert "client 'new' at 10.0.0.9" in line
            assert counted(on) == {("PRODUCER_FENCED", "newcomer"): 1}

    @pytest.mark.parametrize("client_id", ["fencepost-txn", "adminclient-7"])
    async def test_a_tool(self, client_id: str, autojump_clock: MockClock) -> None:
        async with running() as on:
            held = await on.identity()
            await on.seen_from(client_id).identity()
            assert (await on.end(5, held, commit=True)).error_code == E.PRODUCER_FENCED
            assert last(on).cause.reason is Reason.TOOL

    @pytest.mark.parametrize("version", [0, 2])
    async def test_a_timeout(self, version: int, autojump_clock: MockClock) -> None:
        """Row T10: nobody's request; the explanation says so."""
        async with running() as on:
            await on.finalize(version)
            held = await on.identity(transaction_timeout_ms=1000)
            assert await on.add(3, held, T0) == [E.NONE]
            await trio.sleep(3)
            assert (await on.end(3, held, commit=True)).error_code == E.PRODUCER_FENCED
            cause = last(on).cause
            assert cause.reason is Reason.TIMEOUT
            assert "outlived its timeout and was aborted at 2023-11-14T22:13:21" in cause.text

    async def test_the_holder_itself(self, autojump_clock: MockClock) -> None:
        """Row P6: a second InitProducerId with the identity; the one before it is out."""
        async with running() as on:
            held = await on.identity()
            second = await on.init(5, held)
            await on.init(5, (second.producer_id, second.producer_epoch))
            assert await on.add(3, held, T0) == [E.PRODUCER_FENCED]
            assert last(on).cause.reason is Reason.REINIT

    async def test_a_late_request_of_the_living_one(self, autojump_clock: MockClock) -> None:
        """Row T16: under TV2 each EndTxn raises the epoch; who shows an older one has missed its own end."""
        async with running() as on:
            held = first = await on.identity()
            for _ in range(3):
                assert await on.produce(12, held, T0, b"a", 0) == E.NONE
                answer = await on.end(5, held, commit=True)
                held = answer.producer_id, answer.producer_epoch
            before = (held[0], held[1] - 1)
            assert await on.add(5, before, T0) == [E.PRODUCER_FENCED]
            assert last(on).cause.reason is Reason.ENDED
            assert "EndTxn v5 of client 'test' at 127.0.0.1 committed its transaction at" in last(on).cause.text
            assert await on.add(5, first, T0) == [E.PRODUCER_FENCED]
            assert "long ago" in last(on).cause.text

    async def test_one_that_no_producer_was_given(self, autojump_clock: MockClock) -> None:
        async with running() as on:
            held = await on.identity()
            assert (await on.end(5, (held[0], held[1] + 9), commit=True)).error_code == E.PRODUCER_FENCED
            assert last(on).cause.reason is Reason.NEVER_HELD
            assert (await on.end(5, (held[0] + 999, 0), commit=True)).error_code == E.INVALID_PRODUCER_ID_MAPPING
            assert (last(on).code, last(on).cause.reason) == (E.INVALID_PRODUCER_ID_MAPPING, Reason.NEVER_HELD)

    async def test_what_was_before_a_restart(self, autojump_clock: MockClock) -> None:
        """The causes are in memory only: afterwards the state still says that there was one, and since when."""
        async with running() as on:
            held = await on.identity()
            await on.identity()
            _forget(on)
            assert (await on.end(5, held, commit=False)).error_code == E.PRODUCER_FENCED
            cause = last(on).cause
            assert cause.reason is Reason.BEFORE_START
            assert "by a record of 2023-11-14T22:13:20.000Z or older" in cause.text

    async def test_an_id_that_was_forgotten(self, autojump_clock: MockClock) -> None:
        """Row T12: INVALID_PRODUCER_ID_MAPPING after the expiry, and for an id that never was."""
        week = "transactional.id.expiration.ms=60000"
        hourly = "transaction.remove.expired.transaction.cleanup.interval.ms=60000"
        async with running(week, hourly) as on:
            assert (await on.end(5, (7, 0), commit=True)).error_code == E.INVALID_PRODUCER_ID_MAPPING
            assert last(on).cause.reason is Reason.UNKNOWN_ID
            held = await on.identity()
            await trio.sleep(200)
            assert (await on.end(5, held, commit=True)).error_code == E.INVALID_PRODUCER_ID_MAPPING
            assert last(on).cause.reason is Reason.EXPIRED


class TestWhatDoesNotGoWithTheState:
    async def test_nothing_is_open(self, autojump_clock: MockClock) -> None:
        """Row T7: INVALID_TXN_STATE for a commit of nothing."""
        async with running() as on:
            held = await on.identity()
            assert (await on.end(5, held, commit=True)).error_code == E.INVALID_TXN_STATE
            assert (last(on).code, last(on).cause.reason) == (E.INVALID_TXN_STATE, Reason.NOTHING_OPEN)

    @pytest.mark.parametrize(("version", "code"), [(10, E.INVALID_TXN_STATE), (11, E.TRANSACTION_ABORTABLE)])
    async def test_a_partition_that_was_not_added(
        self, version: int, code: ErrorCode, autojump_clock: MockClock
    ) -> None:
        """Row T15: the code is the one that the client was shown (T17)."""
        async with running() as on:
            held = await on.identity()
            assert await on.add(3, held, T1) == [E.NONE]
            assert await on.produce(version, held, T0, b"a", 0) == code
            assert (last(on).code, last(on).cause.reason) == (code, Reason.NOT_ADDED)

    async def test_markers_that_take_long(self, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
        """Table 0, row 12: CONCURRENT_TRANSACTIONS after the wait, and what it waits for."""
        async with running() as on:
            held = await on.identity()
            assert await on.produce(12, held, T0, b"a", 0) == E.NONE
            with stuck_markers(on, monkeypatch):
                await on.end(5, held, commit=True)
                assert (await on.init()).error_code == E.CONCURRENT_TRANSACTIONS
                assert last(on).cause.reason is Reason.COMPLETING
                assert "PrepareCommit" in last(on).cause.text


class TestOtherWays:
    async def test_offsets(self, autojump_clock: MockClock) -> None:
        """AddOffsetsToTxn and TxnOffsetCommit are explained as well, each with the code of its version."""
        async with running() as on:
            held = await on.identity()
            await on.identity()
            assert await add_offsets(on, 1, held) == E.INVALID_PRODUCER_EPOCH
            assert (last(on).code, last(on).cause.reason) == (E.INVALID_PRODUCER_EPOCH, Reason.NEWCOMER)
            assert await commit_offset(on, held, 7) == E.INVALID_PRODUCER_EPOCH
            assert "TxnOffsetCommit v5" in last(on).by

    async def test_the_partition_itself_refuses(self, autojump_clock: MockClock) -> None:
        """Row P4: the log knows the fencing epoch from its marker; the explanation is the coordinator's."""
        async with running() as on:
            held = await on.identity()
            assert await on.produce(12, held, T0, b"a", 0) == E.NONE
            await on.seen_from("new", "10.0.0.9").identity()
            assert await on.add(3, held, T0) == [E.PRODUCER_FENCED]
            log = on.node.partition(T0)
            assert log is not None
            late = _batch(held)
            on.node.transactions.config.change_to(_unverified(on))
            answer = await on.ask(PRODUCE, 9, produce_request("t", late, transactional_id=TX))
            assert answer.responses[0].partition_responses[0].error_code == E.INVALID_PRODUCER_EPOCH
            assert (last(on).cause.reason, last(on).code) == (Reason.NEWCOMER, E.INVALID_PRODUCER_EPOCH)
            assert last(on).by.startswith("Produce v9")

    async def test_a_producer_without_an_id(self, autojump_clock: MockClock) -> None:
        """An idempotent producer is known by its producer id."""
        async with running() as on:
            for epoch, code in ((5, E.NONE), (4, E.INVALID_PRODUCER_EPOCH)):
                batch = batch_of(b"a", timestamp_ms=START_MS, producer_id=77, producer_epoch=epoch, base_sequence=0)
                answer = await on.ask(PRODUCE, 9, produce_request("t", batch))
                assert answer.responses[0].partition_responses[0].error_code == code
            refusal = last(on, 77)
            assert (refusal.shown, refusal.cause.reason) == ((77, 4), Reason.NEWER_EPOCH)
            assert "t-0: producer 77 is at epoch 5" in refusal.cause.text

    async def test_several_producers_in_one_request(self, autojump_clock: MockClock) -> None:
        async with running() as on:
            held = await on.identity()
            request = produce_request("t", _batch(held), transactional_id=TX)
            other = produce_request("t", _batch((held[0] + 1, 0)), partition=1, transactional_id=TX)
            request.topic_data[0].partition_data += other.topic_data[0].partition_data
            answer = await on.ask(PRODUCE, 9, request)
            codes = {part.error_code for part in answer.responses[0].partition_responses}
            assert codes == {E.INVALID_PRODUCER_ID_MAPPING}
            assert counted(on)["INVALID_PRODUCER_ID_MAPPING", "mixed_producers"] == 2

    async def test_markers_by_hand(self, autojump_clock: MockClock) -> None:
        """Row T9: INVALID_PRODUCER_EPOCH to WriteTxnMarkers has a cause as well, under the producer id."""
        async with running() as on:
            held = await on.identity()
            assert await on.produce(12, held, T0, b"a", 0) == E.NONE
            assert await on.mark(2, held, T0, txn_version=2) == E.INVALID_PRODUCER_EPOCH
            assert (last(on, held[0]).cause.reason, last(on, held[0]).shown) == (Reason.NEWER_EPOCH, held)
            assert "WriteTxnMarkers v2" in last(on, held[0]).by

    async def test_a_groups_partition_that_knows_better(self, autojump_clock: MockClock) -> None:
        """An operator's marker with a higher epoch stands in the group's partition: the coordinator cannot know."""
        async with running() as on:
            held = await on.identity()
            place = TopicPartition("__consumer_offsets", on.node.groups.group_partition("readers"))
            assert await commit_offset(on, held, 1) == E.NONE
            assert await on.mark(1, (held[0], held[1] + 5), place, commit=False) == E.NONE
            assert await commit_offset(on, held, 2) == E.INVALID_PRODUCER_EPOCH
            assert last(on).cause.reason is Reason.NEWER_EPOCH
            assert "group 'readers'" in last(on).cause.text


class TestWhereItIsShown:
    async def test_describe_tells_who_asks(self, autojump_clock: MockClock) -> None:
        """The history is in an extension tag, and only if the request sets its own: else the bytes are Kafka's."""
        async with running() as on:
            old = on.seen_from("old", "10.0.0.7")
            held = await old.identity()
            assert await old.produce(12, held, T0, b"a", 0) == E.NONE
            history = (await described(on)).history
            assert (history.owner_client_id, history.owner_host) == ("old", "10.0.0.7")
            assert (history.writer_client_id, history.writer_host) == ("old", "10.0.0.7")
            await on.seen_from("new", "10.0.0.9").identity()
            await old.end(5, held, commit=True)
            changed, refused = (await described(on)).history.lines
            assert (changed.reason, changed.error_code) == ("newcomer", 0)
            assert (refused.reason, refused.error_code, refused.client_host) == ("newcomer", 90, "10.0.0.7")
            assert (await described(on, explain=False)).history is None

    async def test_the_same_again_is_counted_and_not_logged(
        self, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A zombie that does not give up fills neither the log nor the memory."""
        async with running() as on:
            held = await on.identity()
            await on.identity()
            for _ in range(50):
                await trio.sleep(1)
                await on.end(3, held, commit=True)
            assert last(on).times == 50
            assert last(on).last_ms - last(on).at_ms == 49_000
            assert sum("refused" in record.getMessage() for record in caplog.records) == 1
            assert counted(on) == {("PRODUCER_FENCED", "newcomer"): 50}

    async def test_memory_is_bounded(self, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
        """As many stories as set, eight changes and refusals in each; no id of theirs is held by being refused."""
        async with running() as on:
            _forget(on, ids_max=100)
            for number in range(150):
                for epoch in range(12):
                    await on.ask(26, 5, _end(f"id-{number}", epoch))
            kept = on.node.transactions.history
            assert len(kept) == 100
            story = kept.of("id-149")
            assert story is not None
            assert len(story.refusals) == 8
            assert len(on.node.transactions.ids) == 0

    async def test_what_is_not_refused_leaves_no_refusal(self, autojump_clock: MockClock) -> None:
        async with running() as on:
            held = await on.identity()
            for _ in range(5):
                assert await on.produce(12, held, T0, b"a", 0) == E.NONE
                answer = await on.end(5, held, commit=True)
                held = answer.producer_id, answer.producer_epoch
            assert counted(on) == {}
            story = on.node.transactions.history.of(TX)
            assert story is not None
            assert (list(story.refusals), list(story.changes)) == ([], [])


def _batch(held: Identity) -> bytearray:
    return batch_of(
        b"a",
        timestamp_ms=START_MS,
        transactional=True,
        producer_id=held[0],
        producer_epoch=held[1],
        base_sequence=0,
    )


def _end(name: str, epoch: int) -> Any:
    from fencepost.protocol.messages.api26_end_txn import EndTxnRequest

    return EndTxnRequest(transactional_id=name, producer_id=1, producer_epoch=epoch, committed=True)


def _forget(on: TxnNode, ids_max: int = fencing_history.IDS_KEPT) -> None:
    """Begin with an empty history, as a restarted broker does."""
    transactions = on.node.transactions
    transactions.history = transactions._decisions._history = fencing_history.FencingHistory(on.node.clock, ids_max)


def _unverified(on: TxnNode) -> Any:
    from dataclasses import replace

    return replace(on.node.transactions.config, transaction_partition_verification_enable=False)
