"""Scripted brokers for readers: logs made of real batches, fetch sessions by Kafka's rules, errors on demand."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import trio

from fencepost.protocol.control_records import end_txn_marker
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api01_fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from fencepost.protocol.messages.api02_list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from fencepost.protocol.messages.api03_metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from fencepost.protocol.messages.api23_offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from fencepost.protocol.record_batch import build_batch, read_header
from fencepost.protocol.topics import IsolationLevel
from tests.unit.client.scripted_broker import ScriptedBroker

Trouble = Callable[[Any], Any]


class ScriptedCluster:
    """What the scripted brokers of one cluster share: the topic's logs, who leads, which epochs end where."""

    def __init__(self, partitions: int = 1) -> None:
        self.partitions = partitions
        self.brokers: dict[int, FetchBroker] = {}
        self.leader: dict[int, int] = defaultdict(lambda: 1)
        self.epoch: dict[int, int] = defaultdict(int)
        self.batches: dict[int, list[bytes]] = defaultdict(list)
        self.aborted: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        """(Producer id, first offset, the marker's offset)."""
        self.log_start: dict[int, int] = defaultdict(int)
        self.last_stable: dict[int, int] = {}
        self.epoch_ends: dict[tuple[int, int], tuple[int, int]] = {}
        self.times: dict[int, int] = {}
        self.grown = trio.Event()

    def end(self, partition: int) -> int:
        """The high watermark."""
        batches = self.batches[partition]
        return read_header(batches[-1]).next_offset if batches else self.log_start[partition]

    def write(self, partition: int, values: Iterable[bytes], **more: Any) -> None:
        """Append one batch of records without keys, each at the millisecond of its offset."""
        base = self.end(partition)
        made = [(base + n, None, value, ()) for n, value in enumerate(values)]
        self.append(partition, build_batch(made, base_offset=base, leader_epoch=self.epoch[partition], **more))

    def write_in_transaction(self, partition: int, values: Iterable[bytes], producer_id: int, commit: bool) -> None:
        """A batch and its marker."""
        first = self.end(partition)
        self.write(partition, values, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)
        at = self.end(partition)
        if not commit:
            self.aborted[partition].append((producer_id, first, at))
        self.append(partition, end_txn_marker(producer_id, 0, commit, 0, 0, base_offset=at))

    def append(self, partition: int, batch: bytes | bytearray) -> None:
        """Append a batch as it is, and wake the fetches that wait."""
        self.batches[partition].append(bytes(batch))
        self.grown.set()
        self.grown = trio.Event()


class FetchBroker(ScriptedBroker):
    """One broker of a ScriptedCluster. `troubles[partition]` are answers to use up before the log is read:

    an ErrorCode, or a function of the PartitionData that would be answered. `sessions_kept` False declines sessions.
    """

    def __init__(self, cluster: ScriptedCluster, node: int = 1, *, sessions_kept: bool = True) -> None:
        super().__init__(partitions=cluster.partitions)
        self.cluster = cluster
        self.node = node
        self.sessions_kept = sessions_kept
        self.sessions: dict[int, tuple[int, dict[int, Any]]] = {}
        self.troubles: dict[int, list[ErrorCode | Trouble]] = defaultdict(list)
        self.longest_wait_s = 0.05
        cluster.brokers[node] = self

    def fetches(self) -> list[Any]:
        """The Fetch requests so far."""
        return [request for name, _, request in self.requests if name == "Fetch"]

    def on_Metadata(self, request: Any, version: int) -> Any:
        cluster = self.cluster
        partitions = [
            MetadataResponsePartition(
                partition_index=n,
                leader_id=cluster.leader[n],
                leader_epoch=cluster.epoch[n],
                replica_nodes=list(cluster.brokers),
                isr_nodes=list(cluster.brokers),
            )
            for n in range(cluster.partitions)
        ]
        topics = [
            MetadataResponseTopic(name=self.topic, topic_id=self.topic_id, partitions=partitions)
            if entry.name == self.topic
            else MetadataResponseTopic(name=entry.name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            for entry in request.topics or ()
        ]
        brokers = [
            MetadataResponseBroker(node_id=node, host="127.0.0.1", port=broker.port)
            for node, broker in cluster.brokers.items()
        ]
        return MetadataResponse(brokers=brokers, controller_id=1, topics=topics)

    def on_ListOffsets(self, request: Any, version: int) -> Any:
        topics = []
        for topic in request.topics:
            parts = []
            for entry in topic.partitions:
                number = entry.partition_index
                offset = self._offset(number, entry.timestamp, request.isolation_level)
                epoch = self.cluster.epoch[number] if offset >= 0 else -1
                parts.append(
                    ListOffsetsPartitionResponse(
                        partition_index=number, offset=offset, timestamp=entry.timestamp, leader_epoch=epoch
                    )
                )
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=parts))
        return ListOffsetsResponse(topics=topics)

    def _offset(self, number: int, timestamp: int, isolation: int) -> int:
        end = self.cluster.end(number)
        if timestamp == -2:
            return self.cluster.log_start[number]
        if timestamp == -1:
            return self.cluster.last_stable.get(number, end) if isolation == IsolationLevel.READ_COMMITTED else end
        return self.cluster.times.get(timestamp, timestamp if timestamp < end else -1)

    def on_OffsetForLeaderEpoch(self, request: Any, version: int) -> Any:
        topics = []
        for topic in request.topics:
            parts = []
            for entry in topic.partitions:
                known = self.cluster.epoch_ends.get((entry.partition, entry.leader_epoch))
                epoch, end = known or (entry.leader_epoch, self.cluster.end(entry.partition))
                parts.append(EpochEndOffset(partition=entry.partition, leader_epoch=epoch, end_offset=end))
            topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=parts))
        return OffsetForLeaderEpochResponse(topics=topics)

    # -- fetching

    async def on_Fetch(self, request: Any, version: int) -> Any:
        session_id, wanted, refused = self._session(request, version)
        if refused is not ErrorCode.NONE:
            return FetchResponse(error_code=refused, session_id=0, responses=[])
        parts = self._parts(wanted, request)
        if not any(map(told, parts)):
            with trio.move_on_after(min(request.max_wait_ms / 1000, self.longest_wait_s)):
                await self.cluster.grown.wait()
            parts = self._parts(wanted, request)
        if request.session_epoch > 0:
            parts = [part for part in parts if told(part)]
        topic = FetchableTopicResponse(topic=self.topic, topic_id=self.topic_id, partitions=parts)
        endpoints = [
            NodeEndpoint(node_id=node, host="127.0.0.1", port=broker.port)
            for node, broker in self.cluster.brokers.items()
        ]
        return FetchResponse(
            session_id=session_id, responses=[topic] if parts else [], node_endpoints=endpoints, error_code=0
        )

    def _session(self, request: Any, version: int) -> tuple[int, dict[int, Any], ErrorCode]:
        named = {entry.partition: entry for topic in request.topics for entry in topic.partitions}
        if request.session_epoch <= 0:
            self.sessions.pop(request.session_id, None)
            if request.session_epoch < 0 or not self.sessions_kept or version < 7:
                return 0, named, ErrorCode.NONE
            session_id = len(self.requests)
            self.sessions[session_id] = (1, dict(named))
            return session_id, named, ErrorCode.NONE
        epoch, held = self.sessions.get(request.session_id, (-1, {}))
        if epoch < 0:
            return 0, {}, ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if epoch != request.session_epoch:
            return 0, {}, ErrorCode.INVALID_FETCH_SESSION_EPOCH
        held |= named
        for topic in request.forgotten_topics_data:
            for number in topic.partitions:
                held.pop(number, None)
        self.sessions[request.session_id] = (epoch + 1, held)
        return request.session_id, held, ErrorCode.NONE

    def _parts(self, wanted: dict[int, Any], request: Any) -> list[Any]:
        """Every partition's part; `max_bytes` is for all of them together."""
        parts: list[Any] = []
        room = request.max_bytes
        for entry in wanted.values():
            parts.append(self._part(entry, request, room, first=room == request.max_bytes))
            room -= len(parts[-1].records or b"")
        return parts

    def _part(self, entry: Any, request: Any, room: int, *, first: bool) -> Any:
        cluster, number = self.cluster, entry.partition
        end = cluster.end(number)
        stable = cluster.last_stable.get(number, end)
        part = PartitionData(
            partition_index=number, high_watermark=end, last_stable_offset=stable,
            log_start_offset=cluster.log_start[number], aborted_transactions=None, records=b"", error_code=0,
        )  # fmt: skip
        if self.troubles[number]:
            trouble = self.troubles[number].pop(0)
            if not isinstance(trouble, ErrorCode):
                return trouble(part)
            part.error_code = trouble
        elif not cluster.log_start[number] <= entry.fetch_offset <= end:
            part.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        elif cluster.leader[number] != self.node and self.node not in cluster.brokers:
            part.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        else:
            committed = request.isolation_level == IsolationLevel.READ_COMMITTED
            part.records = self._records(entry, room, stable if committed else end, first=first)
            if committed:
                part.aborted_transactions = [
                    AbortedTransaction(producer_id=producer, first_offset=first)
                    for producer, first, last in cluster.aborted[number]
                    if last >= entry.fetch_offset
                ]
        return part

    def _records(self, entry: Any, room: int, end: int, *, first: bool) -> bytes:
        """Whole batches from the offset on; the first of an answer whatever its size (KIP-74)."""
        found = b""
        for batch in self.cluster.batches[entry.partition]:
            header = read_header(batch)
            if header.last_offset < entry.fetch_offset:
                continue
            fits = len(found) + len(batch) <= min(entry.partition_max_bytes, room)
            if header.last_offset >= end or not (fits or (first and not found)):
                break
            found += batch
        return found


def told(part: Any) -> bool:
    """Whether an incremental answer has to name this partition."""
    return bool(len(part.records or b"") or part.error_code or part.preferred_read_replica >= 0)


def moved_to(leader: int, epoch: int) -> Trouble:
    """A refusal that tells the new leader (KIP-951)."""

    def trouble(part: Any) -> Any:
        part.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        part.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
        return part

    return trouble


def prefer(replica: int) -> Trouble:
    """An answer that sends the reader to a follower (KIP-392)."""

    def trouble(part: Any) -> Any:
        part.preferred_read_replica = replica
        return part

    return trouble
