"""ListTransactions v0-2 and DescribeTransactions, DescribeProducers v0 through a whole node (rows T18, T19)."""

from typing import Any

import pytest
import trio
import trio.testing

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api61_describe_producers import DescribeProducersRequest, TopicRequest
from fencepost.protocol.messages.api65_describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from fencepost.protocol.messages.api66_list_transactions import ListTransactionsRequest
from fencepost.protocol.topics import TopicPartition
from tests.kit.patterns import NEEDS_RE2
from tests.unit.broker.txn_node import TX, TxnNode, running, stuck_markers, versions

MockClock = trio.testing.MockClock
E = ErrorCode
T0 = TopicPartition("t", 0)
LIST, DESCRIBE, PRODUCERS = 66, 65, 61


async def listed(on: TxnNode, version: int, **filters: Any) -> dict[str, str]:
    answer = await on.ask(LIST, version, ListTransactionsRequest(**filters))
    assert answer.error_code == E.NONE
    assert answer.unknown_state_filters == []
    return {line.transactional_id: line.transaction_state for line in answer.transaction_states}


async def described(on: TxnNode, *names: str) -> list[Any]:
    answer = await on.ask(DESCRIBE, 0, DescribeTransactionsRequest(transactional_ids=list(names)))
    states: list[Any] = answer.transaction_states
    return states


@pytest.mark.parametrize("version", versions(LIST))
class TestListT18:
    async def test_states_and_producer_ids(self, version: int, autojump_clock: MockClock) -> None:
        async with running() as on:
            held = await on.identity()
            assert await on.produce(12, held, T0, b"a", 0) == E.NONE
            other = await on.identity(transactional_id="billing")
            assert await listed(on, version) == {TX: "Ongoing", "billing": "Empty"}
            assert await listed(on, version, state_filters=["Empty", "CompleteAbort"]) == {"billing": "Empty"}
            assert await listed(on, version, producer_id_filters=[other[0]]) == {"billing": "Empty"}
            assert await listed(on, version, producer_id_filters=[held[0]], state_filters=["Empty"]) == {}

    async def test_an_unknown_state_is_told_and_is_no_error(self, version: int, autojump_clock: MockClock) -> None:
        async with running() as on:
            await on.identity()
            answer = await on.ask(LIST, version, ListTransactionsRequest(state_filters=["Sleeping", "Empty"]))
            assert (answer.error_code, answer.unknown_state_filters) == (E.NONE, ["Sleeping"])
            assert [line.transactional_id for line in answer.transaction_states] == [TX]

    async def test_while_it_loads(
        self, version: int, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """COORDINATOR_LOAD_IN_PROGRESS for the whole answer."""
        async with running() as on:
            await on.identity()
            monkeypatch.setattr(on.node.transactions._completion, "nursery", None)
            answer = await on.ask(LIST, version, ListTransactionsRequest())
            assert (answer.error_code, answer.transaction_states) == (E.COORDINATOR_LOAD_IN_PROGRESS, [])
            [state] = await described(on, TX)
            assert state.error_code == E.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.parametrize("version", versions(LIST, since=1))
async def test_by_how_long_it_runs_kip_994(version: int, autojump_clock: MockClock) -> None:
    async with running() as on:
        held = await on.identity()
        assert await on.produce(12, held, T0, b"a", 0) == E.NONE
        await trio.sleep(5)
        assert await listed(on, version, duration_filter=4_000) == {TX: "Ongoing"}
        assert await listed(on, version, duration_filter=6_000) == {}


@NEEDS_RE2
async def test_by_a_pattern_kip_1152(autojump_clock: MockClock) -> None:
    async with running() as on:
        for name in ("billing-1", "billing-22", "orders"):
            await on.identity(transactional_id=name)
        assert set(await listed(on, 2, transactional_id_pattern="billing-.")) == {"billing-1"}
        assert len(await listed(on, 2, transactional_id_pattern="")) == 3
        answer = await on.ask(LIST, 2, ListTransactionsRequest(transactional_id_pattern="("))
        assert answer.error_code == E.INVALID_REGULAR_EXPRESSION


class TestDescribeT19:
    async def test_each_phase(self, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
        """Partitions while they are open or owed a marker; the start time from the first partition on."""
        async with running() as on:
            held = await on.identity()
            [state] = await described(on, TX)
            assert (state.transaction_state, state.transaction_start_time_ms, state.topics) == ("Empty", -1, [])
            assert await on.produce(12, held, T0, b"a", 0) == E.NONE
            [state] = await described(on, TX)
            began_ms = on.node.clock.now_ms()
            assert (state.transaction_state, state.transaction_start_time_ms) == ("Ongoing", began_ms)
            assert (state.producer_id, state.producer_epoch, state.transaction_timeout_ms) == (*held, 60_000)
            assert [(topic.topic, topic.partitions) for topic in state.topics] == [("t", [0])]
            with stuck_markers(on, monkeypatch):
                await on.end(5, held, commit=True)
                [state] = await described(on, TX)
                assert state.transaction_state == "PrepareCommit"
                assert [(topic.topic, topic.partitions) for topic in state.topics] == [("t", [0])]
            await trio.sleep(1)
            [state] = await described(on, TX)
            assert (state.transaction_state, state.topics) == ("CompleteCommit", [])

    async def test_what_is_not_there(self, autojump_clock: MockClock) -> None:
        async with running() as on:
            codes = [state.error_code for state in await described(on, "nobody", "")]
            assert codes == [E.TRANSACTIONAL_ID_NOT_FOUND, E.INVALID_REQUEST]

    async def test_who_does_not_ask_gets_kafkas_bytes(self, autojump_clock: MockClock) -> None:
        """Our tag is not in the answer to Kafka's own request: every struct ends in an empty tag section."""
        async with running() as on:
            await on.identity()
            await on.identity()
            answer = await on.ask(DESCRIBE, 0, DescribeTransactionsRequest(transactional_ids=[TX]))
            asked = await on.ask(DESCRIBE, 0, DescribeTransactionsRequest(transactional_ids=[TX], explain=True))
            plain = DescribeTransactionsResponse.encode(answer, 0)
            assert plain.endswith(b"\x01\x00\x00"), "no topics, no tags in the state, none in the answer"
            assert len(DescribeTransactionsResponse.encode(asked, 0)) > len(plain) + 100
            assert (
                DescribeTransactionsRequest.encode(DescribeTransactionsRequest(transactional_ids=[]), 0) == b"\x01\x00"
            )


class TestProducersT19:
    async def ask(self, on: TxnNode, *places: TopicPartition) -> list[Any]:
        topics = [TopicRequest(name=place.topic, partition_indexes=[place.partition]) for place in places]
        answer = await on.ask(PRODUCERS, 0, DescribeProducersRequest(topics=topics))
        return [partition for topic in answer.topics for partition in topic.partitions]

    async def test_open_and_ended(self, autojump_clock: MockClock) -> None:
        """The start of the open transaction; after its end the marker's epoch and coordinator epoch."""
        async with running() as on:
            held = await on.identity()
            assert await on.produce(12, held, T0, b"a", 0) == E.NONE
            [partition] = await self.ask(on, T0)
            [producer] = partition.active_producers
            assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (*held, 0)
            assert (producer.current_txn_start_offset, producer.coordinator_epoch) == (0, -1)
            assert producer.last_timestamp == on.node.clock.now_ms()
            await on.end(5, held, commit=True)
            [partition] = await self.ask(on, T0)
            [producer] = partition.active_producers
            assert (producer.producer_epoch, producer.coordinator_epoch) == (held[1] + 1, 0)
            assert producer.current_txn_start_offset == -1

    async def test_what_is_not_there(self, autojump_clock: MockClock) -> None:
        async with running() as on:
            found = await self.ask(on, T0, TopicPartition("t", 9), TopicPartition("nowhere", 0))
            assert [partition.error_code for partition in found] == [E.NONE, *[E.UNKNOWN_TOPIC_OR_PARTITION] * 2]
            assert "t-9" in found[1].error_message
