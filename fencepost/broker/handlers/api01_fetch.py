"""Fetch (1): read batches from partitions in either isolation level, and wait for them up to `max_wait_ms`.

v4-18 are served. v4 brings isolation and the aborted list (I1, I2), v5 the log start offset, v7 sessions (every fetch
here is a full fetch: the response always has session id 0, which KIP-227 allows), v9 leader epochs, v10 allows zstd,
v12 returns a diverging epoch, v13 names topics by id, v16 returns the leader's address. With `read.committed.filter`
the broker leaves aborted batches out (I4).
"""

import math
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Protocol

import trio

from fencepost.broker.config.read_filter import BROKER, filter_for
from fencepost.broker.log.filtering import Looks
from fencepost.broker.log.log_store import Missing
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.reading import epoch_end_offset, read_batches, readable_bytes
from fencepost.broker.log.storage.store import CorruptLogFile
from fencepost.broker.network.context import CloseConnection, LargeWork, RequestContext
from fencepost.broker.network.reply import Ready, Reply, Response
from fencepost.broker.partitions import Leader
from fencepost.broker.ports import (
    HasAuthorizer,
    HasConfig,
    HasMetadata,
    HasMetrics,
    HasPartitions,
    HasPurgatory,
    HasResponseBytes,
)
from fencepost.broker.security.checks import denied_topics, is_allowed
from fencepost.protocol.admin_enums import AclOperation, AclResourceType
from fencepost.protocol.errors import NO_ERROR, ErrorCode
from fencepost.protocol.messages.api01_fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from fencepost.protocol.topics import IsolationLevel, TopicPartition

if TYPE_CHECKING:
    from fencepost.broker.security.authorizer import Authorizer

ZSTD_SINCE = 10
TOPIC_ID_SINCE = 13
ENDPOINTS_SINCE = 16
WAIT_MS_MAX = 600_000
"""The longest wait of a fetch, whatever the client asks for: the default of `connections.max.idle.ms`."""
LEAST_BYTES = 64 << 10
"""What a fetch may return at least, however many bytes of other responses wait to be sent."""
STEP_PARTITIONS = 200
"""Partitions that a fetch of very many reads between two pauses."""
NO_SESSION_EPOCHS = (0, -1)
"""Epochs of a session that begins (0) or ends (-1): both are full fetches."""


class _Broker(
    HasAuthorizer, HasConfig, HasMetadata, HasMetrics, HasPartitions, HasPurgatory, HasResponseBytes, Protocol
):
    """What Fetch needs."""


class _Read:
    """One partition of the request: its log, or its error."""

    __slots__ = ("ask", "diverging", "error", "log", "tp")

    def __init__(self, tp: TopicPartition, ask: FetchPartition, log: PartitionLog | None) -> None:
        self.tp = tp
        self.ask = ask
        self.log = log
        self.error = NO_ERROR
        self.diverging: EpochEndOffset | None = None


class _Fetch:
    """A fetch that reads at once, and again after it waited for records."""

    def __init__(self, node: _Broker, request: FetchRequest, context: RequestContext) -> None:
        self._node = node
        self._version = context.api_version
        self._context = context
        self._bytes_max = max(0, min(request.max_bytes, node.config.fetch_max_bytes))
        self._bytes_min = min(request.min_bytes, self._bytes_max)
        self.isolation = IsolationLevel(request.isolation_level)
        self._filter = filter_for(node.config, context.session.listener_name, context.client_id)
        self.topics: list[tuple[FetchTopic, str, list[_Read]]] = []
        self.missing: list[Missing] = []
        """Bytes that the last `read` needed and that are not in this process yet."""
        self._endpoints: dict[int, NodeEndpoint] = {}
        state = request.replica_state
        self._is_follower = max(request.replica_id, -1 if state is None else state.replica_id) >= 0
        self._checked_by: Authorizer | None = None
        """The authorizer that allowed the reads. The next read checks again if the rules have changed meanwhile."""
        self._responses: list[FetchableTopicResponse] = []
        self._looks = Looks()
        self._read_bytes = self._left = 0
        self._settled = False

    @property
    def logs(self) -> list[PartitionLog]:
        """The logs to wait on."""
        return [read.log for _, _, reads in self.topics for read in reads if read.log is not None]

    def ready(self) -> bool:
        """Whether to stop waiting: enough readable bytes (I7: up to the reader's limit), or a partition changed."""
        total = 0
        isolation = self.isolation
        arrived = not self.missing or any(missing.arrived for missing in self.missing)
        for _, _, reads in self.topics:
            for read in reads:
                log = read.log
                if read.error or log is None or self._node.partition(read.tp) is not log:
                    return True
                offset = read.ask.fetch_offset
                if offset < log.log_start_offset:
                    return True
                try:
                    total += min(readable_bytes(log, offset, isolation), read.ask.partition_max_bytes)
                except (OSError, CorruptLogFile):
                    return True  # the next read raises the same error, and reports it
        return arrived and total >= self._bytes_min

    def note_changes(self) -> None:
        """Give the partitions that this broker serves no more their error: it may have lost its place in a cluster."""
        for _, _, reads in self.topics:
            for read in reads:
                log = read.log
                if log is not None and not log.disowned and self._node.partition(read.tp) is not log:
                    read.log, read.error, read.diverging = None, self._node.absence(read.tp), None

    def read(self) -> tuple[Response, bool]:
        """Read all partitions. Returns the response, and whether to send it without further waiting."""
        self._begin_read()
        self._read_topics(self.topics)
        return self._end_read()

    async def read_in_steps(self, large: LargeWork) -> tuple[Response, bool]:
        """As `read`, with pauses."""
        self._begin_read()
        await large.run(self._read_steps())
        return self._end_read()

    def _read_steps(self) -> Generator[None, None, None]:
        for topic in self.topics:
            self._read_topics([topic])
            yield

    def _begin_read(self) -> None:
        if self._node.authorizer is not self._checked_by:
            self._check_rights()
        self._left = min(self._bytes_max, self._node.response_bytes.left(LEAST_BYTES))
        self.missing = []
        self._looks = Looks()
        self._read_bytes, self._settled = 0, False
        self._responses = []
        self._endpoints = {}

    def _read_topics(self, topics: list[tuple[FetchTopic, str, list[_Read]]]) -> None:
        left, read_bytes = self._left, self._read_bytes
        for ask, name, reads in topics:
            answers, before, failed = [], read_bytes, 0
            for read in reads:
                answer, size = self._read_partition(read, left, read_bytes == 0)
                answers.append(answer)
                if size:
                    read_bytes += size
                    left = max(0, left - size)
                elif answer.error_code or answer.diverging_epoch is not None:
                    self._settled = True
                    failed += bool(answer.error_code)
            self._count(name, reads, read_bytes - before, failed)
            self._responses.append(FetchableTopicResponse(topic=name, topic_id=ask.topic_id, partitions=answers))
        self._left, self._read_bytes = left, read_bytes

    def _end_read(self) -> tuple[Response, bool]:
        response = FetchResponse(responses=self._responses)
        if self._endpoints and self._version >= ENDPOINTS_SINCE:
            response.node_endpoints = list(self._endpoints.values())
        return response, self._settled or self._read_bytes >= self._bytes_min

    def resolve_in_steps(self, request: FetchRequest) -> Generator[None, None, None]:
        """As `resolve`, with pauses. A repeated partition is read once, with its last values, as in Kafka."""
        for topic in request.topics:
            asks = list({ask.partition: ask for ask in topic.partitions}.values())
            for start in range(0, len(asks), STEP_PARTITIONS):
                some = FetchTopic(
                    topic=topic.topic, topic_id=topic.topic_id, partitions=asks[start : start + STEP_PARTITIONS]
                )
                self.resolve([some])
                yield

    def resolve(self, topics: Sequence[FetchTopic]) -> None:
        """Find the logs of the request's partitions, or their errors."""
        node = self._node
        for topic in topics:
            known = node.metadata.topic_name(topic.topic_id) if self._version >= TOPIC_ID_SINCE else topic.topic
            name, reads = known or "", []
            for ask in topic.partitions:
                tp = TopicPartition(name, ask.partition)
                log = None if known is None else node.partition(tp)
                read = _Read(tp, ask, log)
                if log is not None:
                    self._check(read, log)
                else:
                    read.error = ErrorCode.UNKNOWN_TOPIC_ID if known is None else node.absence(tp)
                reads.append(read)
            self.topics.append((topic, name, reads))

    def _check_rights(self) -> None:
        """Refuse the reads of topics that the client may not read. Whether such a topic exists stays hidden."""
        node, context = self._node, self._context
        self._checked_by = node.authorizer
        names = [name for _, name, _ in self.topics if name]
        if self._is_follower:
            ok = is_allowed(node, context, AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER)
            refused = frozenset[str]() if ok else frozenset(names)
        else:
            refused = denied_topics(node, context, AclOperation.READ, names)
        for _, name, reads in self.topics:
            if name in refused:
                for read in reads:
                    read.log, read.error, read.diverging = None, ErrorCode.TOPIC_AUTHORIZATION_FAILED, None

    def _check(self, read: _Read, log: PartitionLog) -> None:
        """Check the leader epochs (KIP-320), and that the client's version can decompress the topic's codec."""
        ask = read.ask
        read.error = leader_epoch_error(ask.current_leader_epoch, log)
        if read.error:
            return
        if self._version < ZSTD_SINCE and log.config.compression_type == "zstd":
            read.error = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        elif ask.last_fetched_epoch >= 0:
            self._compare_epochs(read, log)

    def _compare_epochs(self, read: _Read, log: PartitionLog) -> None:
        """L10: compare the reader's last fetched epoch with this log; an unknown epoch is OFFSET_OUT_OF_RANGE."""
        ask = read.ask
        epoch, end_offset = epoch_end_offset(log, ask.last_fetched_epoch)
        if epoch < 0 or ask.fetch_offset < log.log_start_offset:
            read.error = ErrorCode.OFFSET_OUT_OF_RANGE
        elif epoch < ask.last_fetched_epoch or end_offset < ask.fetch_offset:
            read.diverging = EpochEndOffset(epoch=epoch, end_offset=end_offset)

    def _read_partition(self, read: _Read, left: int, at_least_one: bool) -> tuple[PartitionData, int]:
        """The response for one partition, and the size of its records in bytes."""
        log, ask, error = read.log, read.ask, read.error
        if log is None or error:
            return self._error_answer(read, error), 0
        # After a truncation the reader's offset may be beyond this log's end: it receives no records then.
        offset = ask.fetch_offset if read.diverging is None else log.log_end_offset
        looks = self._looks if (self._filter or log.config.read_committed_filter) == BROKER else None
        result = read_batches(log, offset, min(ask.partition_max_bytes, left), self.isolation, at_least_one, looks)
        if result.error:
            return self._error_answer(read, result.error), 0
        if result.missing is not None:
            self.missing.append(result.missing)
        aborted = None
        if result.aborted is not None:
            aborted = [AbortedTransaction(producer_id=pid, first_offset=first) for pid, first in result.aborted]
        answer = PartitionData(
            partition_index=ask.partition,
            high_watermark=result.high_watermark,
            last_stable_offset=result.last_stable_offset,
            log_start_offset=result.log_start_offset,
            aborted_transactions=aborted,
            diverging_epoch=read.diverging,
            records=result.parts,
        )
        return answer, result.size_bytes

    def _error_answer(self, read: _Read, error: ErrorCode) -> PartitionData:
        answer = PartitionData(partition_index=read.ask.partition, error_code=error, high_watermark=-1, records=b"")
        if error in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER):
            leader = self._node.leader_of(read.tp) or (None if read.log is None else self._own(read.log))
            if leader is not None:
                answer.current_leader = LeaderIdAndEpoch(leader_id=leader.node_id, leader_epoch=leader.epoch)
                self._endpoints[leader.node_id] = NodeEndpoint(
                    node_id=leader.node_id, host=leader.host, port=leader.port, rack=leader.rack
                )
        return answer

    def _own(self, log: PartitionLog) -> Leader | None:
        config, listener = self._node.config, self._context.listener
        if log.disowned:
            return None
        return Leader(config.node_id, log.leader_epoch, listener.host, listener.port, config.broker_rack)

    def _count(self, name: str, reads: list[_Read], size_bytes: int, failed: int) -> None:
        """Count under the topic's name only if the topic exists: a client cannot create counters by asking."""
        metrics = self._node.metrics
        exists = reads and (reads[0].log is not None or any(read.log is not None for read in reads))
        counters = metrics.topic(name) if exists else metrics.no_topic
        counters.fetch_requests += len(reads)
        counters.bytes_out += size_bytes
        counters.failed_fetch_requests += failed


def handle(node: _Broker, request: FetchRequest, context: RequestContext) -> Reply:
    """Read at once. If that is too little, return a coroutine that waits up to `max_wait_ms` and reads again."""
    if request.session_id != 0 and request.session_epoch not in NO_SESSION_EPOCHS:
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    if request.isolation_level not in (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED):
        raise CloseConnection(f"isolation level {request.isolation_level} does not exist")
    fetch = _Fetch(node, request, context)
    if context.large is not None:
        return _read_many(node, fetch, request, context.large)
    fetch.resolve(request.topics)
    response, settled = fetch.read()
    if settled or request.max_wait_ms <= 0 or not fetch.topics:
        return response
    return _read_later(node, fetch, min(request.max_wait_ms, WAIT_MS_MAX))


async def _read_many(node: _Broker, fetch: _Fetch, request: FetchRequest, large: LargeWork) -> Ready:
    """Read in steps. The response has a topic once for every `STEP_PARTITIONS` of its partitions."""
    await large.run(fetch.resolve_in_steps(request))
    response, settled = await fetch.read_in_steps(large)
    if settled or request.max_wait_ms <= 0 or not fetch.topics:
        return response
    return await _read_later(node, fetch, min(request.max_wait_ms, WAIT_MS_MAX), large)


async def _read_later(node: _Broker, fetch: _Fetch, max_wait_ms: int, large: LargeWork | None = None) -> Ready:
    purgatory, deadline = node.purgatory, trio.current_time() + max_wait_ms / 1000
    with purgatory.park(fetch.logs) as parked:
        while True:
            left = deadline - trio.current_time()
            await parked.wait_until(fetch.ready, max(0, math.ceil(left * 1000)))
            fetch.note_changes()
            response, settled = fetch.read() if large is None else await fetch.read_in_steps(large)
            if settled or not fetch.missing or left <= 0 or purgatory.closed:
                return response


def leader_epoch_error(claimed: int, log: PartitionLog) -> ErrorCode:
    """Compare the client's leader epoch with the log's (KIP-320); -1 means that the client knows none."""
    if claimed < 0 or claimed == log.leader_epoch:
        return NO_ERROR
    return ErrorCode.FENCED_LEADER_EPOCH if claimed < log.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
