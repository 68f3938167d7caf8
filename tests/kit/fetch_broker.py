"""Scripted brokers for readers: logs made of real batches, fetch sessions by Kafka's rules, errors on demand."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import trio

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api01_fetch import (
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
)
from fencepost.protocol.messages.api23_offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from tests.kit.answers import Leader, OffsetTold
from tests.kit.batch_log import BatchLog
from tests.kit.scripted_broker import ScriptedBroker

Trouble = Callable[[Any], Any]


class ScriptedCluster:
    """What the scripted brokers of one cluster share: the topic's logs, who leads, which epochs end where."""

    def __init__(self, partitions: int = 1) -> None:
        self.partitions = partitions
        self.brokers: dict[int, FetchBroker] = {}
        self.leader: dict[int, int] = defaultdict(lambda: 1)
        self.epoch: dict[int, int] = defaultdict(int)
        self.logs: dict[int, BatchLog] = defaultdict(BatchLog)
        self.epoch_ends: dict[tuple[int, int], tuple[int, int]] = {}
        self.times: dict[int, int] = {}
        self.grown = trio.Event()

    def write(self, partition: int, values: Iterable[bytes], **more: Any) -> None:
        """Append one batch of records without keys, each at the millisecond of its offset."""
        self.logs[partition].write(values, leader_epoch=self.epoch[partition], **more)
        self.wake()

    def write_in_transaction(self, partition: int, values: Iterable[bytes], producer_id: int, commit: bool) -> None:
        """A batch and its marker."""
        self.logs[partition].transaction(values, producer_id, commit, leader_epoch=self.epoch[partition])
        self.wake()

    def append(self, partition: int, batch: bytes | bytearray) -> None:
        """Append a batch as it is."""
        self.logs[partition].raw(batch)
        self.wake()

    def wake(self) -> None:
        """Wake the fetches that wait."""
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

    def nodes(self) -> dict[int, int]:
        return {node: broker.port for node, broker in self.cluster.brokers.items()}

    def leaders(self) -> dict[int, Leader]:
        return {n: (self.cluster.leader[n], self.cluster.epoch[n]) for n in range(self.cluster.partitions)}

    def offset_at(self, number: int, timestamp: int, isolation: int) -> OffsetTold:
        cluster = self.cluster
        offset = cluster.times.get(timestamp)
        offset = cluster.logs[number].offset_at(timestamp, isolation) if offset is None else offset
        return ErrorCode.NONE, offset, cluster.epoch[number] if offset >= 0 else -1

    def on_OffsetForLeaderEpoch(self, request: Any, version: int) -> Any:
        topics = []
        for topic in request.topics:
            parts = []
            for entry in topic.partitions:
                known = self.cluster.epoch_ends.get((entry.partition, entry.leader_epoch))
                epoch, end = known or (entry.leader_epoch, self.cluster.logs[entry.partition].end)
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
        endpoints = [NodeEndpoint(node_id=node, host="127.0.0.1", port=port) for node, port in self.nodes().items()]
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
        part = cluster.logs[number].fetched(entry, request.isolation_level, room, first=first)
        if self.troubles[number]:
            part.records, part.aborted_transactions, part.error_code = b"", None, ErrorCode.NONE
            trouble = self.troubles[number].pop(0)
            if not isinstance(trouble, ErrorCode):
                return trouble(part)
            part.error_code = trouble
        return part


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
