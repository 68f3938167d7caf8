"""The partitions of one Fetch request: which may be read, and what is read of each."""

from collections.abc import Generator, Sequence
from typing import Protocol

from fencepost.broker.brokers import Leader, other_leader
from fencepost.broker.fetch.sessions import TOPIC_ID_SINCE
from fencepost.broker.log.filtering import FilterBudget
from fencepost.broker.log.log_store import Missing
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.reading import epoch_end_offset, read_batches, readable_bytes
from fencepost.broker.log.storage.store import CorruptLogFile
from fencepost.broker.network.context import LargeWork, RequestContext
from fencepost.broker.network.reply import Response
from fencepost.broker.ports import Broker
from fencepost.broker.security.authorizer import Authorizer
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

ZSTD_SINCE = 10
ENDPOINTS_SINCE = 16
LEAST_BYTES = 64 << 10
"""What a fetch may return at least, however many bytes of other responses wait to be sent."""
STEP_PARTITIONS = 200
"""Partitions that a fetch of very many reads between two pauses."""


class LogSource(Protocol):
    """The logs that a fetch reads."""

    def partition(self, tp: TopicPartition) -> PartitionLog | None: ...


def is_by_follower(request: FetchRequest) -> bool:
    state = request.replica_state
    return max(request.replica_id, -1 if state is None else state.replica_id) >= 0


class Read:
    """One partition of the request: its log, or its error."""

    __slots__ = ("ask", "diverging", "error", "log", "tp")

    def __init__(self, tp: TopicPartition, ask: FetchPartition, log: PartitionLog | None) -> None:
        self.tp = tp
        self.ask = ask
        self.log = log
        self.error = NO_ERROR
        self.diverging: EpochEndOffset | None = None


class Fetch:
    """A fetch that reads at once, and again after it waited for records."""

    def __init__(self, node: Broker, request: FetchRequest, context: RequestContext) -> None:
        self._node = node
        self._source: LogSource = node
        """Where the logs to read come from."""
        self._version = context.api_version
        self._context = context
        self._bytes_max = max(0, min(request.max_bytes, node.config.fetch_max_bytes))
        self._bytes_min = min(request.min_bytes, self._bytes_max)
        self.isolation = IsolationLevel(request.isolation_level)
        self._filter = node.config.read_committed_filter_for(context.session.listener_name, context.client_id)
        self.topics: list[tuple[FetchTopic, str, list[Read]]] = []
        self.missing: list[Missing] = []
        """Bytes that the last `read` needed and that are not in this process yet."""
        self._endpoints: dict[int, NodeEndpoint] = {}
        self._is_follower = is_by_follower(request)
        self._checked_by: Authorizer | None = None
        """The authorizer that allowed the reads. The next read checks again if the rules have changed meanwhile."""
        self._responses: list[FetchableTopicResponse] = []
        self._budget = FilterBudget()
        self._read_bytes = self._left = 0
        self._settled = False

    @property
    def logs(self) -> list[PartitionLog]:
        return [read.log for _, _, reads in self.topics for read in reads if read.log is not None]

    def ready(self) -> bool:
        """Whether to stop waiting: enough readable bytes (I7: up to the reader's limit), or a partition changed."""
        total = 0
        isolation = self.isolation
        arrived = not self.missing or any(missing.arrived for missing in self.missing)
        for _, _, reads in self.topics:
            for read in reads:
                log = read.log
                if read.error or log is None or self._source.partition(read.tp) is not log:
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
                if log is not None and not log.disowned and self._source.partition(read.tp) is not log:
                    read.log, read.error, read.diverging = None, self._absence(read), None

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
        self._budget = FilterBudget()
        self._read_bytes, self._settled = 0, False
        self._responses = []
        self._endpoints = {}

    def _read_topics(self, topics: list[tuple[FetchTopic, str, list[Read]]]) -> None:
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
        for topic in topics:
            known = self._name(topic)
            name, reads = known or "", []
            for ask in topic.partitions:
                tp = TopicPartition(name, ask.partition)
                log = None if known is None else self._source.partition(tp)
                read = Read(tp, ask, log)
                if log is not None:
                    self._check(read, log)
                else:
                    read.error = ErrorCode.UNKNOWN_TOPIC_ID if known is None else self._absence(read)
                reads.append(read)
            self.topics.append((topic, name, reads))

    def _name(self, topic: FetchTopic) -> str | None:
        return self._node.metadata.topic_name(topic.topic_id) if self._version >= TOPIC_ID_SINCE else topic.topic

    def _absence(self, read: Read) -> ErrorCode:
        return self._node.absence(read.tp)

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

    def _check(self, read: Read, log: PartitionLog) -> None:
        """Check the leader epochs (KIP-320), and that the client's version can decompress the topic's codec."""
        ask = read.ask
        read.error = leader_epoch_error(ask.current_leader_epoch, log)
        if read.error:
            return
        if self._version < ZSTD_SINCE and log.config.compression_type == "zstd":
            read.error = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        elif ask.last_fetched_epoch >= 0:
            self._compare_epochs(read, log)

    def _compare_epochs(self, read: Read, log: PartitionLog) -> None:
        """L10: compare the reader's last fetched epoch with this log; an unknown epoch is OFFSET_OUT_OF_RANGE."""
        ask = read.ask
        epoch, end_offset = epoch_end_offset(log, ask.last_fetched_epoch)
        if epoch < 0 or ask.fetch_offset < log.log_start_offset:
            read.error = ErrorCode.OFFSET_OUT_OF_RANGE
        elif epoch < ask.last_fetched_epoch or end_offset < ask.fetch_offset:
            read.diverging = EpochEndOffset(epoch=epoch, end_offset=end_offset)

    def _read_partition(self, read: Read, left: int, at_least_one: bool) -> tuple[PartitionData, int]:
        """The response for one partition, and the size of its records in bytes."""
        log, ask, error = read.log, read.ask, read.error
        if log is None or error:
            return self._error_answer(read, error), 0
        # After a truncation the reader's offset may be beyond this log's end: it receives no records then.
        offset = ask.fetch_offset if read.diverging is None else log.log_end_offset
        budget = self._budget if (self._filter or log.config.read_committed_filter) == "broker" else None
        result = read_batches(log, offset, min(ask.partition_max_bytes, left), self.isolation, at_least_one, budget)
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

    def _error_answer(self, read: Read, error: ErrorCode) -> PartitionData:
        answer = PartitionData(partition_index=read.ask.partition, error_code=error, high_watermark=-1, records=b"")
        if error in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER):
            leader = self._leader(read)
            if leader is not None:
                answer.current_leader = LeaderIdAndEpoch(leader_id=leader.node_id, leader_epoch=leader.epoch)
                self._endpoints[leader.node_id] = NodeEndpoint(
                    node_id=leader.node_id, host=leader.host, port=leader.port, rack=leader.rack
                )
        return answer

    def _leader(self, read: Read) -> Leader | None:
        config, listener, log = self._node.config, self._context.listener, read.log
        if log is None or log.disowned:
            return other_leader(self._node, self._context, read.tp)
        return Leader(config.node_id, log.leader_epoch, listener.host, listener.port, config.broker_rack)

    def _count(self, name: str, reads: list[Read], size_bytes: int, failed: int) -> None:
        """Count under the topic's name only if the topic exists: a client cannot create counters by asking."""
        metrics = self._node.metrics
        exists = reads and (reads[0].log is not None or any(read.log is not None for read in reads))
        counters = metrics.topic(name) if exists else metrics.no_topic
        counters.fetch_requests += len(reads)
        counters.bytes_out += size_bytes
        counters.failed_fetch_requests += failed


def leader_epoch_error(claimed: int, log: PartitionLog) -> ErrorCode:
    """Compare the client's leader epoch with the log's (KIP-320); -1 means that the client knows none."""
    return epoch_error(claimed, log.leader_epoch)


def epoch_error(claimed: int, current: int) -> ErrorCode:
    """Compare the client's leader epoch with the current one (KIP-320); -1 means that the client knows none."""
    if claimed < 0 or claimed == current:
        return NO_ERROR
    return ErrorCode.FENCED_LEADER_EPOCH if claimed < current else ErrorCode.UNKNOWN_LEADER_EPOCH
