"""Three of the known transaction faults of aiokafka, played against our client with scripted brokers.

The fourth, aiokafka#920, needs a real log: integration/client/test_faults_of_aiokafka.py.
"""

import random
from collections.abc import Callable
from typing import Any

import pytest
import trio

import fencepost
from fencepost import AbortableError, ErrorCode, TopicPartition
from fencepost.client.core.group_types import CommittedOffset, GroupMetadata
from fencepost.protocol.messages.api10_find_coordinator import Coordinator, FindCoordinatorResponse
from fencepost.protocol.messages.api28_txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from tests.kit.scripted_broker import HANG_UP, ScriptedBroker

Script = Callable[..., Any]
GROUP = GroupMetadata("g", 3, "member", None)
T0, T1 = TopicPartition("in", 0), TopicPartition("in", 1)
GROUP_KEY = 0


def client(broker: ScriptedBroker, **options: Any) -> fencepost.Client:
    return fencepost.Client(broker.address, random=random.Random(1), **{"retry_backoff": 0.001, **options})


def refusing(broker: ScriptedBroker, code: ErrorCode) -> Callable[[Any, int], Any]:
    return lambda request, version: broker.offsets_taken(request, code)


@pytest.mark.parametrize("version", [2, 1])
async def test_aiokafka_1098_offsets_from_several_tasks_and_a_retry_between(script: Script, version: int) -> None:
    """aiokafka#1098: KeyError in the sender, because one commit's answer was looked up in another one's offsets.

    Record by record, several tasks of one transaction send offsets of the same partition; one is asked to come again.
    """
    broker = await script(transaction_version=version)
    broker.scripts["TxnOffsetCommit"] = [refusing(broker, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), HANG_UP]
    async with client(broker) as kafka, kafka.transactional_producer("id") as producer:
        for turn in range(3):
            async with producer.transaction() as txn, trio.open_nursery() as nursery:
                await txn.send("t", b"%d" % turn)
                for partition in (T0, T1, T0):
                    offsets = {partition: CommittedOffset(10 + turn)}
                    nursery.start_soon(txn.send_group_offsets, GROUP, offsets)
    assert broker.offsets == {("in", 0): 12, ("in", 1): 12}
    assert [request.committed for name, _, request in broker.requests if name == "EndTxn"] == [True] * 3


async def test_aiokafka_1098_an_answer_about_other_partitions_is_no_answer(script: Script) -> None:
    """What was asked and is not named in the answer has not been taken: the transaction aborts, nobody's task dies."""
    broker = await script()
    other = TxnOffsetCommitResponsePartition(partition_index=9, error_code=0)
    broker.scripts["TxnOffsetCommit"] = [
        TxnOffsetCommitResponse(topics=[TxnOffsetCommitResponseTopic(name="in", partitions=[other])])
    ]
    async with client(broker) as kafka, kafka.transactional_producer("id") as producer:
        with pytest.raises(AbortableError, match="in"):  # noqa: PT012 - the whole block is what fails
            async with producer.transaction() as txn:
                await txn.send("t", b"a")
                await txn.send_group_offsets(GROUP, {T0: CommittedOffset(5)})
        async with producer.transaction() as txn:
            await txn.send_group_offsets(GROUP, {T0: CommittedOffset(5)})
    assert broker.offsets == {("in", 0): 5}
    ends = [request.committed for name, _, request in broker.requests if name == "EndTxn"]
    assert ends == [False, True]


@pytest.mark.parametrize("how", ["gone", "hangs up"])
async def test_aiokafka_905_the_group_coordinators_node_fails_in_a_transaction(script: Script, how: str) -> None:
    """aiokafka#905: TxnOffsetCommit went to the dead node for ever; the coordinator was never looked for again."""
    broker = await script()
    gone = await script()
    gone.scripts["TxnOffsetCommit"] = [HANG_UP] * 100
    port = gone.port if how == "hangs up" else 1  # nobody listens there
    asked = []

    def coordinator(request: Any, version: int) -> Any:
        key = request.coordinator_keys[0]
        first = request.key_type == GROUP_KEY and not asked
        if request.key_type == GROUP_KEY:
            asked.append(key)
        node, where = (2, port) if first else (1, broker.port)
        return FindCoordinatorResponse(coordinators=[Coordinator(key=key, node_id=node, host="127.0.0.1", port=where)])

    broker.scripts["FindCoordinator"] = [coordinator] * 5
    async with client(broker) as kafka, kafka.transactional_producer("id") as producer:
        with trio.fail_after(100):
            async with producer.transaction() as txn:
                await txn.send("t", b"a")
                await txn.send_group_offsets(GROUP, {T0: CommittedOffset(5)})
    assert asked == ["g", "g"], "the coordinator was looked for again, once"
    assert broker.offsets == {("in", 0): 5}
    assert gone.names("TxnOffsetCommit") == ["TxnOffsetCommit"] * (how == "hangs up")


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
    ],
)
@pytest.mark.parametrize("version", [2, 1])
async def test_aiokafka_1004_what_kafka_37_answers_while_it_verifies(
    script: Script, code: ErrorCode, version: int
) -> None:
    """aiokafka#1004: since Kafka 3.7 the broker asks the transaction coordinator before it takes offsets or records.

    What that check may answer meanwhile (error 13 in the report) ended the producer with "Unexpected error during
    batch delivery". Records first and offsets afterwards, as in the report.
    """
    broker = await script(transaction_version=version)
    broker.scripts["TxnOffsetCommit"] = [refusing(broker, code)] * 2
    broker.scripts["Produce"] = [broker.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)]
    async with client(broker) as kafka, kafka.transactional_producer("id") as producer:
        with trio.fail_after(100):
            async with producer.transaction() as txn:
                for value in (b"a", b"b"):
                    await txn.send("t", value)
                await txn.send_group_offsets(GROUP, {T0: CommittedOffset(5)})
    assert broker.logs[0] == [b"a", b"b"]
    assert broker.offsets == {("in", 0): 5}
    talk = broker.names("AddPartitionsToTxn", "AddOffsetsToTxn", "Produce", "TxnOffsetCommit", "EndTxn")
    assert talk.count("EndTxn") == 1
    assert talk[-1] == "EndTxn"
    if version == 1:
        assert talk.index("AddPartitionsToTxn") < talk.index("Produce"), "nothing unverified is sent"
        assert talk.index("AddOffsetsToTxn") < talk.index("TxnOffsetCommit")
