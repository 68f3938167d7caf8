"""Transactions that acknowledge records of share groups, through a whole node (after KIP-1289's draft)."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import trio
import trio.testing

from fencepost.broker.config.broker_config import load_config
from fencepost.broker.handlers.api1093_txn_share_acknowledge import handle
from fencepost.broker.network.reply import ready
from fencepost.broker.node import Node
from fencepost.broker.security.authorizer import Authorizer
from fencepost.broker.share.sessions import TopicIdPartition
from fencepost.coordinator.metadata.commands import NewTopic
from fencepost.coordinator.share.values import DeliveryState, InitialState, ShareKey, StateBatch
from fencepost.protocol.admin_enums import AclOperation
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import api78_share_fetch as fetching
from fencepost.protocol.messages import api1093_txn_share_acknowledge as acknowledging
from fencepost.protocol.topics import SHARE_STATE_TOPIC, TopicPartition
from tests.kit.clocks import VirtualClock
from tests.kit.waiting import soon
from tests.kit.wire import batch_of, produce_request
from tests.unit.broker.txn_node import TX, Identity, TxnNode

GROUP, MEMBER, ACCEPT = "g", "one", 1
SETTINGS = (
    "listeners=PLAINTEXT://127.0.0.1:0",
    "unstable.api.versions.enable=true",
    "transaction.state.log.num.partitions=1",
    "offsets.topic.num.partitions=1",
)


class ShareNode(TxnNode):
    """One member of one group, on the topic `t`."""

    @property
    def key(self) -> ShareKey:
        return ShareKey(GROUP, self.node.metadata.topic_id("t") or b"", 0)

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(SHARE_STATE_TOPIC, self.node.share_states.partition_of(self.key))

    async def acquire(self) -> None:
        """Ten records, for the member."""
        await self.node.metadata.create_topics([NewTopic("t", 1)])
        await self.node.share_states.initialize({self.key: InitialState(1, 0)})
        batch = batch_of(*(b"x" for _ in range(10)), timestamp_ms=self.node.clock.now_ms())
        await self.ask(ApiKey.PRODUCE, 9, produce_request("t", batch))
        part = fetching.FetchPartition(partition_index=0)
        request = fetching.ShareFetchRequest(
            group_id=GROUP,
            member_id=MEMBER,
            max_wait_ms=10_000,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=10,
            batch_size=10,
            topics=[fetching.FetchTopic(topic_id=self.key.topic_id, partitions=[part])],
        )
        answer = await self.ask(ApiKey.SHARE_FETCH, 2, request)
        assert answer.responses[0].partitions[0].acquired_records[0].last_offset == 9

    async def ack(self, held: Identity, first: int = 0, last: int = 9, **fields: Any) -> ErrorCode:
        """Accept in a transaction: the error of the request, or of the one partition."""
        batch = acknowledging.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[ACCEPT])
        part = acknowledging.TxnShareAcknowledgePartition(partition_index=0, acknowledgement_batches=[batch])
        topic = acknowledging.TxnShareAcknowledgeTopic(topic_id=self.key.topic_id, partitions=[part])
        whole = {
            "transactional_id": TX,
            "group_id": GROUP,
            "producer_id": held[0],
            "producer_epoch": held[1],
            "member_id": MEMBER,
            "topics": [topic],
            **fields,
        }
        request = acknowledging.TxnShareAcknowledgeRequest(**whole)
        answer = await self.ask(ApiKey.TXN_SHARE_ACKNOWLEDGE, 0, request)
        return ErrorCode(answer.error_code or answer.responses[0].partitions[0].error_code)

    async def stored(self) -> tuple[StateBatch, ...]:
        return (await self.node.share_states.read(self.key, 0)).batches


@asynccontextmanager
async def running(*settings: str) -> AsyncIterator[ShareNode]:
    node = Node(load_config(assignments=[*SETTINGS, *settings]), clock=VirtualClock(), listening=False)
    async with trio.open_nursery() as nursery:
        await nursery.start(node.run)
        try:
            yield ShareNode(node)
        finally:
            node.stop()
            with trio.CancelScope(shield=True):
                await node.stopped.wait()


async def test_a_crash_between_the_decision_and_the_marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row T13: the start finds the decision, writes the markers that it owes, and the acknowledgements count."""
    before, after = tmp_path / "before", tmp_path / "after"
    async with running(f"log.dirs={before}") as on:
        held = await on.identity()
        await on.acquire()
        assert await on.ack(held) is ErrorCode.NONE

        async def never(*_: object) -> None:
            await trio.sleep_forever()

        monkeypatch.setattr(on.node.markers, "append_with_decision", lambda *_: None)
        monkeypatch.setattr(on.node.markers, "write_markers", never)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(on.end, 5, held, commit=True))
            await soon(lambda: on.node.transactions.ids.counts["PrepareCommit"])
            await on.node.transactions.runtime.shard_of(TX).log.newest.durable()
            await on.node.flusher.flush_all(on.node.logs.logs())
            shutil.copytree(before, after)
            nursery.cancel_scope.cancel()
        assert await on.stored() == (StateBatch(0, 9, DeliveryState.TX_PENDING, 1),)
    async with running(f"log.dirs={after}") as on:
        await soon(lambda: on.node.transactions.ids.counts["CompleteCommit"])
        assert await on.stored() == (StateBatch(0, 9, DeliveryState.ACKNOWLEDGED, 1),)
        assert await on.markers(on.place) == [("COMMIT", held[1] + 1)]


async def test_the_partition_joins_the_transaction_by_itself() -> None:
    """KIP-890, as for TxnOffsetCommit v5: no request has to add it before."""
    async with running("storage=memory") as on:
        held = await on.identity()
        await on.acquire()
        assert await on.ack(held) is ErrorCode.NONE
        assert on.node.transactions.is_ongoing_with(TX, *held, frozenset({on.place}))
        assert (await on.end(5, held, commit=True)).error_code == ErrorCode.NONE
        assert await on.markers(on.place) == [("COMMIT", held[1] + 1)]
        assert await on.stored() == (StateBatch(0, 9, DeliveryState.ACKNOWLEDGED, 1),)


async def test_refusals_of_the_transaction_are_those_of_txn_offset_commit() -> None:
    """Rows P4 and T17: a fenced epoch, an id that is not known, another producer; nothing is pending then."""
    async with running("storage=memory") as on:
        await on.acquire()
        old = await on.identity()
        held = await on.identity()
        assert await on.ack(old) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await on.ack((held[0] + 1, 0)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert await on.ack(held, transactional_id="unknown") is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert await on.ack(held) is ErrorCode.NONE


@pytest.mark.parametrize(
    "fields", [{"transactional_id": ""}, {"group_id": ""}, {"member_id": ""}, {"member_id": "m" * 37}]
)
async def test_requests_that_make_no_sense(fields: dict[str, str]) -> None:
    async with running("storage=memory") as on:
        await on.acquire()
        assert await on.ack(await on.identity(), **fields) is ErrorCode.INVALID_REQUEST


async def test_partitions_that_are_not_there() -> None:
    async with running("storage=memory") as on:
        await on.acquire()
        held = await on.identity()
        assert await on.ack(held, group_id="other") is ErrorCode.INVALID_RECORD_STATE
        for topic_id, partition, error in (
            (b"\1" * 16, 0, ErrorCode.UNKNOWN_TOPIC_ID),
            (on.key.topic_id, 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ):
            batch = acknowledging.AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[ACCEPT])
            part = acknowledging.TxnShareAcknowledgePartition(
                partition_index=partition, acknowledgement_batches=[batch]
            )
            topic = acknowledging.TxnShareAcknowledgeTopic(topic_id=topic_id, partitions=[part])
            assert await on.ack(held, topics=[topic]) is error


async def test_a_partition_that_knows_a_newer_epoch_refuses_and_says_why() -> None:
    """Fencing by the partition's own log; the member holds its records as before."""
    async with running("storage=memory") as on:
        await on.acquire()
        held = await on.identity()
        log = on.node.partition(on.place)
        assert log is not None
        assert await on.mark(2, (held[0], held[1] + 3), on.place) == ErrorCode.NONE
        assert await on.ack(held) is ErrorCode.INVALID_PRODUCER_EPOCH
        [led] = on.node.shares.led()
        assert led.core.next_expiry() is not None
        assert not led.core.resolve(held[0], False), "nothing is pending"


async def test_share_groups_that_are_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """As ShareAcknowledge: UNSUPPORTED_VERSION."""
    async with running("storage=memory") as on:
        await on.acquire()
        held = await on.identity()
        monkeypatch.setattr(type(on.node), "share_protocol", False)
        assert await on.ack(held) is ErrorCode.UNSUPPORTED_VERSION


async def test_a_leader_that_reads_while_the_transaction_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer of the share coordinator may be older than the end: the leader applies it after the answer."""
    async with running("storage=memory") as on:
        await on.acquire()
        held = await on.identity()
        assert await on.ack(held) is ErrorCode.NONE
        for ended in list(on.client[1].closed.values()):
            ended()  # its connection: no session is left, and the leader forgets the share partition
        await trio.testing.wait_all_tasks_blocked()
        assert on.node.shares.led() == []
        read, gate = on.node.share_states.read, trio.Event()

        async def slow(*arguments: Any) -> Any:
            found = await read(*arguments)
            await gate.wait()
            return found

        monkeypatch.setattr(on.node.share_states, "read", slow)
        led = on.node.shares.begin(GROUP, TopicIdPartition(on.key.topic_id, 0), TopicPartition("t", 0))
        assert not isinstance(led, ErrorCode)
        await trio.testing.wait_all_tasks_blocked()
        assert (await on.end(5, held, commit=False)).error_code == ErrorCode.NONE
        assert not led.active
        gate.set()
        await trio.testing.wait_all_tasks_blocked()
        assert led.core.next_fetch_offset() == 0


async def test_a_topic_that_the_client_may_not_read() -> None:
    """As TxnOffsetCommit: TOPIC_AUTHORIZATION_FAILED for the partition, and it is not added to the transaction."""
    async with running("storage=memory") as on:
        await on.acquire()
        held = await on.identity()
        on.node.authorizer = Authorizer(())
        assert await on.ack(held) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert not on.node.transactions.is_ongoing_with(TX, *held, frozenset({on.place}))


@pytest.mark.parametrize("host", ["127.0.0.1", "192.0.2.1"])
async def test_a_client_cannot_store_states_as_a_leader_does(host: str) -> None:
    """What brokers of a cluster send one another needs CLUSTER_ACTION, or without an authorizer this machine."""
    asked: list[AclOperation] = []

    def allows(session: Any, operation: AclOperation, *resource: Any) -> bool:
        asked.append(operation)
        return False

    local = host == "127.0.0.1"
    node: Any = SimpleNamespace(authorizer=SimpleNamespace(allows=allows) if local else None, config=load_config())
    session = SimpleNamespace(client_host=host, principal=None)
    context: Any = MagicMock(session=session, api_key=ApiKey.TXN_SHARE_ACKNOWLEDGE, api_version=0)
    request = acknowledging.TxnShareAcknowledgeRequest(
        transactional_id="t", group_id="g", updates=[acknowledging.UpdatedTopic()]
    )
    answer: Any = await ready(handle(node, request, context))
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert asked == ([AclOperation.CLUSTER_ACTION] if local else [])
