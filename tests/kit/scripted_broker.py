"""A broker that answers what a test tells it to, over a socket: for what no real broker does on demand."""

import ssl
from collections import defaultdict
from collections.abc import Callable, Sequence
from inspect import isawaitable
from typing import Any

import trio

from fencepost.protocol.batch_header import read_header
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api00_produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from fencepost.protocol.messages.api10_find_coordinator import Coordinator, FindCoordinatorResponse
from fencepost.protocol.messages.api18_api_versions import FinalizedFeatureKey
from fencepost.protocol.messages.api22_init_producer_id import InitProducerIdResponse
from fencepost.protocol.messages.api24_add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from fencepost.protocol.messages.api25_add_offsets_to_txn import AddOffsetsToTxnResponse
from fencepost.protocol.messages.api26_end_txn import EndTxnResponse
from fencepost.protocol.messages.api28_txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from fencepost.protocol.records import decode_records
from fencepost.protocol.registry import API_BY_KEY
from tests.kit.answers import Leader, OffsetTold, metadata_told, offsets_told, partitions_told, versions_told
from tests.kit.frames import Asked, FrameReader

HANG_UP = object()
"""A script's answer: close the connection instead of answering."""
SILENCE = object()
"""A script's answer: never answer this request."""

STRANGERS = ("rdkafka", "aiokafka", "kafka-python")
"""Clients of other tests that look for a broker which is gone, where its port has been given to this one."""


async def listen(port: int, host: str) -> tuple[int, Sequence[trio.abc.Listener[trio.SocketStream]]]:
    """Listeners on a port, or on any if it is 0; the port. Some tests put `PairedNetwork.listen` in its place."""
    listeners = await trio.open_tcp_listeners(port, host=host)
    return listeners[0].socket.getsockname()[1], listeners


class SentBatch:
    """One batch as it came in."""

    def __init__(self, partition: int, data: Any) -> None:
        self.partition = partition
        self.header = read_header(data)
        self.values = [record.value for record in decode_records(data, 0, self.header)]

    @property
    def place(self) -> tuple[int, int]:
        """(epoch, base sequence)."""
        return self.header.producer_epoch, self.header.base_sequence


class ScriptedBroker:
    """Speaks enough for a producer. `scripts[api name]` is a list of answers to use up before the default ones.

    An answer is a value, its body as bytes, HANG_UP, SILENCE, or a function (request, version) -> answer.
    """

    def __init__(self, topic: str = "t", partitions: int = 1, transaction_version: int = 2) -> None:
        self.topic = topic
        self.topic_id = bytes(range(16))
        self.partitions = partitions
        self.transaction_version = transaction_version
        self.highest: dict[str, int] = {}
        self.scripts: dict[str, list[Any]] = defaultdict(list)
        self.requests: list[tuple[str, int, Any]] = []
        self.batches: list[SentBatch] = []
        self.logs: dict[int, list[bytes | None]] = defaultdict(list)
        self.offsets: dict[tuple[str, int], int] = {}
        self.identity = (7, 0)
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def names(self, *wanted: str) -> list[str]:
        """The names of the requests so far, or of those that are in `wanted`."""
        return [name for name, _, _ in self.requests if not wanted or name in wanted]

    async def serve(
        self,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
        *,
        host: str = "127.0.0.1",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.port, listeners = await listen(self.port, host)
        task_status.started()
        if tls is None:
            await trio.serve_listeners(self._connection, listeners)
        else:
            await trio.serve_listeners(self._connection, [trio.SSLListener(one, tls) for one in listeners])

    async def _connection(self, stream: trio.SocketStream | trio.SSLStream[trio.SocketStream]) -> None:
        frames = FrameReader(stream)
        try:
            while (frame := await frames.next()) is not None:
                asked = Asked(frame)
                if (asked.header.client_id or "").startswith(STRANGERS):
                    return
                if asked.api.name == "SaslHandshake" and not self._speaks_sasl():
                    return  # another stranger
                answer = self._answer(asked.api.name, asked.version, asked.request)
                if isawaitable(answer):
                    answer = await answer
                if answer is HANG_UP:
                    return
                if answer is not SILENCE:
                    await stream.send_all(asked.answered(answer))
        except trio.BrokenResourceError:
            return
        finally:
            await trio.aclose_forcefully(stream)

    def _speaks_sasl(self) -> bool:
        return hasattr(self, "on_SaslHandshake") or bool(self.scripts["SaslHandshake"])

    def _answer(self, name: str, version: int, request: Any) -> Any:
        self.requests.append((name, version, request))
        if self.scripts[name]:
            scripted = self.scripts[name].pop(0)
            if scripted is HANG_UP or scripted is SILENCE:
                if name == "Produce":
                    self._note(request)
                return scripted
            return scripted(request, version) if callable(scripted) else scripted
        default: Callable[[Any, int], Any] = getattr(self, f"on_{name}")
        return default(request, version)

    # -- default answers

    def on_ApiVersions(self, request: Any, version: int) -> Any:
        ranges = {
            api.key: (api.served[0], min(api.served[1], self.highest.get(api.name, 99))) for api in API_BY_KEY.values()
        }
        level = self.transaction_version
        feature = FinalizedFeatureKey(name="transaction.version", max_version_level=level, min_version_level=level)
        return versions_told(ranges, finalized_features=[feature] if level else [])

    def nodes(self) -> dict[int, int]:
        """By node, the port of every broker of its cluster."""
        return {1: self.port}

    def leaders(self) -> dict[int, Leader]:
        """By partition."""
        return dict.fromkeys(range(self.partitions), (1, -1))

    def on_Metadata(self, request: Any, version: int) -> Any:
        topics = {self.topic: partitions_told(self.leaders(), self.nodes())}
        return metadata_told(self.nodes(), [entry.name for entry in request.topics or ()], topics, self.topic_id)

    def offset_at(self, number: int, timestamp: int, isolation: int) -> OffsetTold:
        """Where a partition has the first record so late."""
        raise NotImplementedError

    def on_ListOffsets(self, request: Any, version: int) -> Any:
        return offsets_told(request, lambda topic, number, time: self.offset_at(number, time, request.isolation_level))

    def on_FindCoordinator(self, request: Any, version: int) -> Any:
        found = Coordinator(key=request.coordinator_keys[0], node_id=1, host="127.0.0.1", port=self.port)
        return FindCoordinatorResponse(coordinators=[found])

    def on_InitProducerId(self, request: Any, version: int) -> Any:
        self.identity = (self.identity[0], self.identity[1] + 1)
        return InitProducerIdResponse(producer_id=self.identity[0], producer_epoch=self.identity[1])

    def on_AddOffsetsToTxn(self, request: Any, version: int) -> Any:
        return AddOffsetsToTxnResponse()

    def on_TxnOffsetCommit(self, request: Any, version: int) -> Any:
        return self.offsets_taken(request)

    def on_AddPartitionsToTxn(self, request: Any, version: int) -> Any:
        return self.added(request, ErrorCode.NONE)

    def on_EndTxn(self, request: Any, version: int) -> Any:
        if version >= 5:
            self.identity = (self.identity[0], self.identity[1] + 1)
        return EndTxnResponse(producer_id=self.identity[0], producer_epoch=self.identity[1])

    def on_Produce(self, request: Any, version: int) -> Any:
        self._note(request)
        return self.produced(request, version)

    # -- pieces for scripts

    def added(self, request: Any, code: ErrorCode) -> Any:
        """An answer to AddPartitionsToTxn: the same code for every partition."""
        topics = [
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=code)
                    for number in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)

    def offsets_taken(self, request: Any, code: ErrorCode = ErrorCode.NONE) -> Any:
        """An answer to TxnOffsetCommit: the same code for every partition; without one the offsets are kept."""
        topics = []
        for topic in request.topics:
            parts = []
            for entry in topic.partitions:
                if code is ErrorCode.NONE:
                    self.offsets[topic.name, entry.partition_index] = entry.committed_offset
                parts.append(TxnOffsetCommitResponsePartition(partition_index=entry.partition_index, error_code=code))
            topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=parts))
        return TxnOffsetCommitResponse(topics=topics)

    def _note(self, request: Any) -> None:
        for topic in request.topic_data:
            for partition in topic.partition_data:
                self.batches.append(SentBatch(partition.index, partition.records))

    def produced(self, request: Any, version: int, code: ErrorCode = ErrorCode.NONE) -> Any:
        """An answer to Produce: success (the values join `logs`) or the same error for every partition."""
        topics = []
        for topic in request.topic_data:
            parts = []
            for partition in topic.partition_data:
                log = self.logs[partition.index]
                base = len(log)
                if code is ErrorCode.NONE:
                    log += SentBatch(partition.index, partition.records).values
                parts.append(
                    PartitionProduceResponse(
                        index=partition.index, error_code=code, base_offset=base if code is ErrorCode.NONE else -1
                    )
                )
            topics.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=parts))
        return ProduceResponse(responses=topics)

    def refuse(self, code: ErrorCode) -> Callable[[Any, int], Any]:
        """A script for Produce: note the batch, answer `code`."""

        def script(request: Any, version: int) -> Any:
            self._note(request)
            return self.produced(request, version, code)

        return script
