"""A whole node in memory on virtual time, asked through the bytes of the protocol but without a socket in between."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from inspect import isawaitable
from typing import Any

import pytest
import trio
import trio.testing

from fencepost.broker.config.broker_config import load_config
from fencepost.broker.network.context import Endpoint, RequestContext, Session
from fencepost.broker.network.reply import Durable
from fencepost.broker.node import Node
from fencepost.coordinator.metadata.commands import ConfigEdit, ConfigEdits
from fencepost.protocol.admin_enums import ConfigOperation, ConfigResourceType
from fencepost.protocol.batch_header import iter_headers
from fencepost.protocol.control_records import read_marker
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api22_init_producer_id import InitProducerIdRequest
from fencepost.protocol.messages.api24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from fencepost.protocol.messages.api25_add_offsets_to_txn import AddOffsetsToTxnRequest
from fencepost.protocol.messages.api26_end_txn import EndTxnRequest
from fencepost.protocol.messages.api27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from fencepost.protocol.messages.api57_update_features import FeatureUpdateKey, UpdateFeaturesRequest
from fencepost.protocol.registry import API_BY_KEY
from fencepost.protocol.topics import TopicPartition
from tests.kit.clocks import VirtualClock
from tests.kit.wire import batch_of, committed_values, fetch_request, produce_request, txn_offset_request

TX = "orders"
Identity = tuple[int, int]
PRODUCE, FETCH, INIT, ADD, ADD_OFFSETS, END, MARKERS, OFFSETS, FEATURES = 0, 1, 22, 24, 25, 26, 27, 28, 57
SAFE_DOWNGRADE = 2
MINUTE_S = 60
FIRST = TopicPartition("t", 0)
QUICK = (
    "transaction.max.timeout.ms=120000",
    "transaction.hanging.check.interval.ms=10000",
    "transaction.partition.verification.enable=false",
)
ABORTING = (*QUICK, "transaction.hanging.abort=true")


class TxnNode:
    """What tests of transactions ask of a broker. Each method is one request; the answer went through its bytes."""

    def __init__(self, node: Node, client_id: str = "test", client_host: str = "127.0.0.1") -> None:
        self.node = node
        self.client = client_id, Session(client_host, Endpoint("host", 9092))

    def seen_from(self, client_id: str, client_host: str = "127.0.0.1") -> "TxnNode":
        """The same node, asked by another client."""
        return TxnNode(self.node, client_id, client_host)

    async def ask(self, key: int, version: int, request: Any) -> Any:
        route = self.node.dispatch.route(key, version)
        asked = route.api.request.decode(route.api.request.encode(request, version), version)
        context = RequestContext(key, version, 1, *self.client)
        answer: Any = route.handle(self.node, asked, context)
        if isawaitable(answer):
            answer = await answer
        if isinstance(answer, Durable):
            if await self.node.flusher.wait_all(answer.tickets):
                answer.revise()
            answer = answer.response
        return route.api.response.decode(route.api.response.encode(answer, version), version)

    async def init(self, version: int = 5, held: Identity = (-1, -1), **fields: Any) -> Any:
        whole = {"transactional_id": TX, "transaction_timeout_ms": 60_000, **fields}
        return await self.ask(
            INIT, version, InitProducerIdRequest(producer_id=held[0], producer_epoch=held[1], **whole)
        )

    async def identity(self, **fields: Any) -> Identity:
        answer = await self.init(**fields)
        assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code)
        return answer.producer_id, answer.producer_epoch

    async def add(self, version: int, held: Identity, *names: TopicPartition, verify: bool = False) -> list[int]:
        """The code of each partition, in order; `verify` needs v4 or later."""
        topics = [AddPartitionsToTxnTopic(name=name.topic, partitions=[name.partition]) for name in names]
        if version < 4:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=TX,
                v3_and_below_producer_id=held[0],
                v3_and_below_producer_epoch=held[1],
                v3_and_below_topics=topics,
            )
            results = (await self.ask(ADD, version, request)).results_by_topic_v3_and_below
        else:
            one = AddPartitionsToTxnTransaction(
                transactional_id=TX, producer_id=held[0], producer_epoch=held[1], verify_only=verify, topics=topics
            )
            answer = await self.ask(ADD, version, AddPartitionsToTxnRequest(transactions=[one]))
            [result] = answer.results_by_transaction
            results = result.topic_results
        return [part.partition_error_code for topic in results for part in topic.results_by_partition]

    async def produce(self, version: int, held: Identity, name: TopicPartition, value: bytes, sequence: int) -> int:
        batch = batch_of(
            value,
            timestamp_ms=self.node.clock.now_ms(),
            transactional=True,
            producer_id=held[0],
            producer_epoch=held[1],
            base_sequence=sequence,
        )
        request = produce_request(name.topic, batch, partition=name.partition, transactional_id=TX)
        if version >= 13:
            request.topic_data[0].topic_id = self.node.metadata.topic_id(name.topic)
        answer = await self.ask(PRODUCE, version, request)
        code: int = answer.responses[0].partition_responses[0].error_code
        return code

    async def end(self, version: int, held: Identity, *, commit: bool) -> Any:
        request = EndTxnRequest(transactional_id=TX, producer_id=held[0], producer_epoch=held[1], committed=commit)
        return await self.ask(END, version, request)

    async def mark(
        self,
        version: int,
        held: Identity,
        name: TopicPartition,
        *,
        commit: bool = True,
        coordinator: int = 0,
        txn_version: int = 0,
    ) -> int:
        marker = WritableTxnMarker(
            producer_id=held[0],
            producer_epoch=held[1],
            transaction_result=commit,
            coordinator_epoch=coordinator,
            transaction_version=txn_version,
            topics=[WritableTxnMarkerTopic(name=name.topic, partition_indexes=[name.partition])],
        )
        answer = await self.ask(MARKERS, version, WriteTxnMarkersRequest(markers=[marker]))
        code: int = answer.markers[0].topics[0].partitions[0].error_code
        return code

    async def finalize(self, level: int) -> None:
        """UpdateFeatures: `transaction.version` at another level."""
        update = FeatureUpdateKey(feature="transaction.version", max_version_level=level, upgrade_type=SAFE_DOWNGRADE)
        if level > self.node.metadata.features.finalized.get("transaction.version", 0):
            update.upgrade_type = 1
        answer = await self.ask(FEATURES, 2, UpdateFeaturesRequest(feature_updates=[update]))
        assert answer.error_code == ErrorCode.NONE, answer.error_message

    async def committed(self, name: TopicPartition) -> list[bytes | None]:
        """What a read_committed reader is given."""
        answer = await self.ask(FETCH, 11, fetch_request(name.topic, partition=name.partition, isolation=1))
        return committed_values(answer.responses[0].partitions[0])

    async def markers(self, name: TopicPartition) -> list[tuple[str, int]]:
        """Type and epoch of each control batch in the partition."""
        answer = await self.ask(FETCH, 11, fetch_request(name.topic, partition=name.partition))
        data = bytes(answer.responses[0].partitions[0].records or b"")
        return [
            (read_marker(data, position, header).type.name, header.producer_epoch)
            for position, header in iter_headers(data)
            if header.is_control
        ]

    def state_bytes(self) -> list[bytes | None]:
        """The values of the id's partition of `__transaction_state`, in order."""
        log = self.node.transactions.runtime.shard_of(TX).log
        return [value for batch in log.replay() for _, value in batch.records]


@asynccontextmanager
async def running(*settings: str) -> AsyncIterator[TxnNode]:
    """A node with the topic `t` of three partitions."""
    from fencepost.coordinator.metadata.commands import NewTopic

    config = load_config(assignments=["storage=memory", "listeners=PLAINTEXT://127.0.0.1:0", *settings])
    node = Node(config, clock=VirtualClock())
    async with trio.open_nursery() as nursery:
        await nursery.start(node.run)
        try:
            await node.metadata.create_topics([NewTopic("t", 3)])
            yield TxnNode(node)
        finally:
            node.stop()
            with trio.CancelScope(shield=True):
                await node.stopped.wait()


T0, T1, GONE = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("nowhere", 0)


def versions(key: int, since: int = 0) -> list[int]:
    low, high = API_BY_KEY[key].served
    return list(range(max(low, since), high + 1))


async def add_offsets(on: TxnNode, version: int, held: Identity) -> int:
    request = AddOffsetsToTxnRequest(
        transactional_id=TX, producer_id=held[0], producer_epoch=held[1], group_id="readers"
    )
    code: int = (await on.ask(ADD_OFFSETS, version, request)).error_code
    return code


async def alter_broker(on: TxnNode, name: str, value: str) -> None:
    """IncrementalAlterConfigs of the one broker."""
    edits = ConfigEdits(ConfigResourceType.BROKER, "1", (ConfigEdit(name, ConfigOperation.SET, value),))
    [outcome] = await on.node.metadata.alter_configs([edits])
    assert outcome.code is ErrorCode.NONE, outcome.message


@contextmanager
def stuck_markers(on: TxnNode, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Within, no marker gets anywhere."""
    gate, write = trio.Event(), on.node.markers.write_markers

    async def wait(*arguments: Any) -> Any:
        await gate.wait()
        return await write(*arguments)

    monkeypatch.setattr(on.node.markers, "write_markers", wait)
    monkeypatch.setattr(on.node.markers, "append_with_decision", lambda *_: None)
    yield
    gate.set()


async def commit_offset(on: TxnNode, held: Identity, offset: int) -> int:
    """TxnOffsetCommit v5 for the group `readers`."""
    request = txn_offset_request("readers", "t", offset, TX, held)
    code: int = (await on.ask(OFFSETS, 5, request)).topics[0].partitions[0].error_code
    return code


async def hang(on: TxnNode, partition: TopicPartition = FIRST) -> Identity:
    """Leave a transaction open that the coordinator does not know: the batch of an old client, without verification."""
    held = await on.identity()
    assert await on.produce(11, held, partition, b"hanging", 0) == ErrorCode.NONE
    return held
