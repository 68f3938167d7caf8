"""Brokers from Kafka 2.1 on, and a cluster whose transaction.version changes at run time (row T16): scripted."""

import logging
import random
from collections.abc import Callable
from typing import Any

import pytest
import trio

import fencepost
from fencepost import FatalError, OutcomeUnknownError, TopicPartition
from fencepost.client.core.group_types import CommittedOffset, GroupMetadata
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api00_produce import LeaderIdAndEpoch
from fencepost.protocol.messages.api03_metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from fencepost.protocol.messages.api10_find_coordinator import FindCoordinatorResponse
from fencepost.protocol.messages.api26_end_txn import EndTxnResponse
from tests.kit.scripted_broker import HANG_UP, SILENCE, ScriptedBroker

Script = Callable[..., Any]
KAFKA_21 = {
    "Produce": 7,
    "Fetch": 10,
    "ListOffsets": 4,
    "Metadata": 7,
    "FindCoordinator": 2,
    "ApiVersions": 2,
    "InitProducerId": 1,
    "AddPartitionsToTxn": 1,
    "AddOffsetsToTxn": 1,
    "EndTxn": 1,
    "TxnOffsetCommit": 2,
}
"""The highest versions of Kafka 2.1, of the requests that a transactional producer makes."""
TALK = ("InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "Produce", "TxnOffsetCommit", "EndTxn")
PLACE = TopicPartition("in", 0)
MEMBER = GroupMetadata("g", 3, "member", "instance")


def client(broker: ScriptedBroker, **options: Any) -> fencepost.Client:
    return fencepost.Client(broker.address, random=random.Random(1), **{"retry_backoff": 0.001, **options})


async def old(script: Script, **options: Any) -> ScriptedBroker:
    """A broker as Kafka 2.1 is: no finalized features, none of the newer versions."""
    broker: ScriptedBroker = await script(transaction_version=0, **options)
    broker.highest = KAFKA_21

    def coordinator(request: Any, version: int) -> Any:
        return FindCoordinatorResponse(node_id=1, host="127.0.0.1", port=broker.port)

    broker.scripts["FindCoordinator"] = [coordinator] * 20
    return broker


async def test_a_transaction_with_offsets_on_kafka_21(script: Script, caplog: pytest.LogCaptureFixture) -> None:
    """TV0: what a newer protocol would guard and this one cannot is said once."""
    broker = await old(script)
    with caplog.at_level(logging.WARNING):
        async with client(broker) as kafka, kafka.transactional_producer("id") as producer:
            for value in (b"a", b"b"):
                async with producer.transaction() as txn:
                    assert not txn._state.tv2
                    await txn.send("t", value)
                    await txn.send_group_offsets(
                        GroupMetadata("g", 3, "member", "instance"), {PLACE: CommittedOffset(7)}
                    )
    assert broker.logs[0] == [b"a", b"b"]
    assert broker.offsets == {("in", 0): 7}
    for name, version, request in broker.requests:
        assert name == "ApiVersions" or version <= KAFKA_21[name]
        if name == "TxnOffsetCommit":
            assert (request.member_id, request.generation_id_or_member_epoch) == ("", -1)
    assert broker.names(*TALK)[0] == "InitProducerId"
    assert broker.names("InitProducerId") == ["InitProducerId"], "no epoch is taken that the broker cannot give"
    assert sum("KIP-447" in message for message in caplog.messages) == 1


async def test_a_lost_commit_is_asked_for_again_without_a_new_epoch(script: Script) -> None:
    """KIP-360 came with Kafka 2.5: before, a late copy of EndTxn can still end the next transaction (KAFKA-17754)."""
    broker = await old(script)
    broker.scripts["EndTxn"] = [HANG_UP]
    async with client(broker) as kafka, kafka.transactional_producer("id") as producer:
        for value in (b"a", b"b"):
            async with producer.transaction() as txn:
                await txn.send("t", value)
    assert broker.names("InitProducerId", "EndTxn") == ["InitProducerId", "EndTxn", "EndTxn", "EndTxn"]


@pytest.mark.parametrize(("said", "committed"), [(ErrorCode.NONE, True), (ErrorCode.INVALID_TXN_STATE, False)])
async def test_an_unknown_outcome_is_found_out(
    script: Script, said: ErrorCode, committed: bool, autojump_clock: trio.testing.MockClock
) -> None:
    broker = await old(script)
    broker.scripts["EndTxn"] = [SILENCE] * 3
    options = {"request_timeout": 0.1, "default_api_timeout": 0.25}
    async with client(broker, **options) as kafka, kafka.transactional_producer("id") as producer:
        with pytest.raises(OutcomeUnknownError):
            async with producer.transaction() as txn:
                await txn.send("t", b"a")
        broker.scripts["EndTxn"] = [EndTxnResponse(error_code=said)]
        assert await producer.reinitialise() is committed
        async with producer.transaction() as txn:
            await txn.send("t", b"b")


async def test_an_abort_that_was_not_answered_is_asked_for_again_first(
    script: Script, autojump_clock: trio.testing.MockClock
) -> None:
    broker = await old(script)
    broker.scripts["EndTxn"] = [SILENCE]
    async with client(broker) as kafka, kafka.transactional_producer("id") as producer:
        with pytest.raises(ZeroDivisionError):
            await give_up(producer)
        async with producer.transaction() as txn:
            await txn.send("t", b"b")
    ends = [request.committed for name, _, request in broker.requests if name == "EndTxn"]
    assert ends == [False, False, True]


async def test_a_number_that_is_lost_can_not_be_mended(script: Script, autojump_clock: trio.testing.MockClock) -> None:
    """As in Kafka's own producer: without a new epoch the next record would be out of order for ever."""
    broker = await old(script)
    broker.scripts["Produce"] = [SILENCE] * 9
    async with (
        client(broker, request_timeout=0.3) as kafka,
        kafka.transactional_producer("id", delivery_timeout=1) as producer,
    ):
        with pytest.raises(fencepost.AbortableError):
            async with producer.transaction() as txn:
                await txn.send("t", b"a")
        broker.scripts["Produce"] = []
        with pytest.raises(FatalError, match="open a new producer"):
            async with producer.transaction() as txn:
                await txn.send("t", b"b")


async def test_what_an_aborted_transaction_left_unanswered_is_not_part_of_the_next_one(
    script: Script, autojump_clock: trio.testing.MockClock
) -> None:
    """The leader hangs, the coordinator is another broker: it ends the transaction while the record is on its way.

    Without epochs that tell transactions apart, the record would be the next one's: that one begins once the leader has
    answered, and by then a second abort has taken the record along.
    """
    coordinator, leader = await old(script), await old(script)
    story: list[str] = []

    def topic_is_there(request: Any, version: int) -> Any:
        partition = MetadataResponsePartition(partition_index=0, leader_id=2, replica_nodes=[2], isr_nodes=[2])
        topics = [MetadataResponseTopic(name="t", partitions=[partition])] if request.topics else []
        brokers = [
            MetadataResponseBroker(node_id=node, host="127.0.0.1", port=broker.port)
            for node, broker in ((1, coordinator), (2, leader))
        ]
        return MetadataResponse(brokers=brokers, controller_id=1, topics=topics)

    async def slowly(request: Any, version: int) -> Any:
        await trio.sleep(12)
        story.append("appended")
        return leader.on_Produce(request, version)

    def end(request: Any, version: int) -> Any:
        story.append("committed" if request.committed else "aborted")
        return EndTxnResponse()

    coordinator.scripts["Metadata"] = leader.scripts["Metadata"] = [topic_is_there] * 1000
    coordinator.scripts["EndTxn"] = [end] * 10

    async def take_back(producer: fencepost.TransactionalProducer) -> None:
        async with producer.transaction() as txn:
            await txn.send("t", b"taken back")
            while leader.scripts["Produce"]:  # noqa: ASYNC110 - nobody tells of it
                await trio.sleep(0.001)
            raise ZeroDivisionError

    async with client(coordinator) as kafka, kafka.transactional_producer("id") as producer:
        leader.scripts["Produce"] = [slowly]
        with pytest.raises(ZeroDivisionError):
            await take_back(producer)
        async with producer.transaction() as txn:
            await txn.send("t", b"b")
    assert story[-3:] == ["appended", "aborted", "committed"]
    assert leader.logs[0] == [b"taken back", b"b"]


async def test_an_abort_waits_until_nothing_is_unanswered_also_of_what_was_sent_again(
    script: Script, autojump_clock: trio.testing.MockClock
) -> None:
    """T7: under TV1 a record that arrives behind the abort would be part of the next transaction.

    An answer that names the new leader has the batch sent again at once, in the moment in which all seems to be quiet.
    Who sees that first is chance, so it is tried some times.
    """
    broker = await script(transaction_version=1)
    unanswered: list[int] = []
    async with client(broker) as kafka, kafka.transactional_producer("x") as producer:
        sender, real = producer._manager._sender, producer._manager.link.ask
        assert sender is not None

        async def ask(wanted: Any) -> Any:
            unanswered.append(sender.in_flight)
            return await real(wanted)

        async def take_back(epoch: int) -> None:
            answer = trio.Event()

            async def moved(request: Any, version: int) -> Any:
                await answer.wait()
                said = broker.produced(request, version, ErrorCode.NOT_LEADER_OR_FOLLOWER)
                said.responses[0].partition_responses[0].current_leader = LeaderIdAndEpoch(
                    leader_id=1, leader_epoch=epoch
                )
                return said

            broker.scripts["Produce"] = [moved]
            async with producer.transaction() as txn:
                await txn.send("t", b"a")
                while not sender.in_flight:  # noqa: ASYNC110 - nobody tells of it
                    await trio.sleep(0.001)
                answer.set()
                raise ZeroDivisionError

        producer._manager.link.ask = ask  # type: ignore[method-assign]
        for epoch in range(1, 13):
            with pytest.raises(ZeroDivisionError):
                await take_back(epoch)
    assert set(unanswered) == {0}


async def give_up(producer: fencepost.TransactionalProducer) -> None:
    async with producer.transaction() as txn:
        await txn.send("t", b"a")
        await producer.flush()
        raise ZeroDivisionError


async def test_a_level_that_changes_is_noticed_between_two_transactions(
    script: Script, autojump_clock: trio.testing.MockClock
) -> None:
    """T16: also on a connection that stays, once what it told is as old as metadata may become."""
    broker = await script(transaction_version=1)
    seen = []
    async with client(broker, metadata_max_age=0.05) as kafka, kafka.transactional_producer("id") as producer:
        for level in (1, 2, 2, 1, 0, 2):
            broker.transaction_version = level
            await trio.sleep(0.06)
            async with producer.transaction() as txn:
                await txn.send("t", b"%d" % level)
                seen.append(txn._state.tv2)
                broker.transaction_version = 3 - level if level else 0
                await txn.send("t", b"still")
    assert seen == [False, True, True, False, False, True]
    ends = [version for name, version, _ in broker.requests if name == "EndTxn"]
    assert [version >= 5 for version in ends] == seen
    produced = [version for name, version, _ in broker.requests if name == "Produce"]
    assert [version >= 12 for version in produced] == seen
