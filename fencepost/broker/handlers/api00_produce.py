"""Produce (0): append one batch per partition, verify its transaction, respond as `acks` asks.

v3-13 are served. v0-2 are advertised for old librdkafka (KAFKA-18659); the broker closes the connection, as Kafka does.
v5 returns the log start offset, v7 allows zstd, v8 returns per-record errors (KIP-467), v11 knows
TRANSACTION_ABORTABLE, v12 adds partitions to the transaction implicitly (KIP-890, T16), v13 names topics by id.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from fencepost.broker.log.partition import AppendOrigin, PartitionLog
from fencepost.broker.log.producer_state import ALREADY_OPEN, VerificationGuard
from fencepost.broker.log.results import Ticket
from fencepost.broker.log.storage.store import Bytes
from fencepost.broker.log.validation import Accepted
from fencepost.broker.network.context import CloseConnection, RequestContext
from fencepost.broker.network.reply import Durable, Ready, Reply
from fencepost.broker.ports import (
    HasClock,
    HasFlusher,
    HasLargeWrites,
    HasMetadata,
    HasMetrics,
    HasPartitions,
    HasTransactions,
)
from fencepost.broker.transactions.refused_writes import explain_refused
from fencepost.coordinator.metadata.topic_names import INTERNAL_TOPICS
from fencepost.protocol.batch_header import CorruptBatch, read_header
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api00_produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from fencepost.protocol.topics import TopicPartition

if TYPE_CHECKING:
    from fencepost.broker.metrics.counters import TopicCounters
    from fencepost.broker.partitions import Leader

ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1
ZSTD_SINCE = 7
ABORTABLE_SINCE = 11
IMPLICIT_ADD_SINCE = 12
TOPIC_ID_SINCE = 13

ATTRIBUTES_LOW_BYTE = 22
TRANSACTIONAL = 0x10
_CODEC_MASK, _ZSTD = 0x07, 4
_OK, _CLIENT = ErrorCode.NONE, AppendOrigin.CLIENT
"""Globals: reading a member from its enum costs twenty times as much."""
MIXED_PRODUCERS = "One request carries several producers' transactions"
ADMIN_CLIENT_ID = "__admin_client"
"""The one client id that Kafka lets write to internal topics (its tools use it)."""


class _Broker(HasClock, HasFlusher, HasLargeWrites, HasMetadata, HasMetrics, HasPartitions, HasTransactions, Protocol):
    """What Produce needs."""


class Write:
    """One partition of the request: its batch, its log, and the result."""

    __slots__ = ("batch", "checked", "counters", "error", "guard", "log", "message", "ticket", "tp")

    def __init__(self, tp: TopicPartition, log: PartitionLog | None, batch: Bytes, error: ErrorCode) -> None:
        self.tp = tp
        self.log = log
        self.batch = batch
        self.error = error
        self.message: str | None = None
        self.guard: VerificationGuard | None = None
        self.checked: Accepted | None = None
        """The result of validation, if the batch was staged."""
        self.ticket: Ticket | None = None
        """The result of the append."""
        self.counters: TopicCounters | None = None
        """The topic's counters, if the partition has a log here."""

    def fail(self, error: ErrorCode, message: str | None = None) -> None:
        """Refuse this partition's batch."""
        self.error = error
        self.message = message


class _Acknowledgement(Durable):
    """The response to acks=all."""

    __slots__ = ("_node", "_request", "_writes")

    def __init__(self, node: _Broker, request: ProduceRequest, writes: Sequence[Write], tickets: list[Ticket]) -> None:
        self.response = _response(node, request, writes)
        self.tickets = tickets
        self._node = node
        self._request = request
        self._writes = writes

    def revise(self) -> None:
        """Replace the acknowledgement of a batch by an error if its log went offline before the batch was durable."""
        for write in self._writes:
            _update_from_ticket(self._node, write)
        self.response = _response(self._node, self._request, self._writes)


def handle(node: _Broker, request: ProduceRequest, context: RequestContext) -> Reply:
    """Append every batch, in order. With acks=all the response waits until the batches are durable.

    Returns a coroutine only if the coordinator must verify a transaction, a thread writes a large batch, or the
    producer is throttled.
    """
    writes, transactional, large = _resolve(node, request, context)
    if request.acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
        _fail_all(writes, ErrorCode.INVALID_REQUIRED_ACKS)
    elif transactional:
        unverified = _check_transactions(request, context, transactional, writes)
        if unverified is not None and not _is_verified(node, request, unverified):
            return _verify_first(node, request, context, writes, large, unverified)
    if large and (large := _for_thread(node, large)):
        return _stage_first(node, request, context, writes, large)
    tickets = _append_all(node, request, context, writes)
    if request.acks != ACKS_ALL and node.commit.over_backlog([ticket.log for ticket in tickets]):
        return _throttle_first(node, request, writes, tickets)
    return _answer(node, request, writes, tickets)


async def _verify_first(
    node: _Broker,
    request: ProduceRequest,
    context: RequestContext,
    writes: list[Write],
    large: list[Write],
    unverified: "_Unverified",
) -> Ready:
    await _verify(node, request.transactional_id or "", unverified, context)
    return await _stage_first(node, request, context, writes, _for_thread(node, large))


async def _stage_first(
    node: _Broker, request: ProduceRequest, context: RequestContext, writes: list[Write], large: list[Write]
) -> Ready:
    version = transaction_version(context.api_version)
    async with node.large_writes.staged(large, version, node.clock.now_ms()):
        tickets = _append_all(node, request, context, writes)
    return await _throttle_first(node, request, writes, tickets)


def _for_thread(node: _Broker, large: list[Write]) -> list[Write]:
    """Select the large batches that a thread should write."""
    return [
        write for write in large if write.error is _OK and write.log is not None and node.large_writes.wants(write.log)
    ]


async def _throttle_first(node: _Broker, request: ProduceRequest, writes: list[Write], tickets: list[Ticket]) -> Ready:
    if request.acks != ACKS_ALL:
        await node.commit.throttle([ticket.log for ticket in tickets])
    return _answer(node, request, writes, tickets)


def _append_all(node: _Broker, request: ProduceRequest, context: RequestContext, writes: list[Write]) -> list[Ticket]:
    """Append the batches without an error. Returns the tickets of the appended batches."""
    tickets: list[Ticket] = []
    now_ms = node.clock.now_ms()
    version = transaction_version(context.api_version)
    for write in writes:
        if write.error is _OK:
            assert write.log is not None
            ticket = write.ticket = write.log.append(
                write.batch,
                _CLIENT,
                now_ms,
                transaction_version=version,
                guard=write.guard,
                checked=write.checked,
            )
            if ticket.error is _OK:
                tickets.append(ticket)
                counters = write.counters
                if counters is not None and not ticket.duplicate:
                    counters.messages_in += ticket.end_offset - ticket.base_offset
                    counters.bytes_in += len(write.batch)
                continue
            write.fail(ticket.error, ticket.message)
            explain_refused(node, request.transactional_id, write, context)
        elif write.message is MIXED_PRODUCERS:
            explain_refused(node, request.transactional_id, write, context)
        _count_failure(node, write)
    if request.acks != ACKS_ALL:
        for ticket in tickets:
            node.commit.schedule(ticket.log)
    return tickets


def _resolve(
    node: _Broker, request: ProduceRequest, context: RequestContext
) -> tuple[list[Write], list[Write], list[Write]]:
    """One write per partition, in the request's order; a write that cannot be appended has its error set.

    The second list holds the other writes with a transactional batch, the third those with a large batch. The batch's
    attributes decide whether it is transactional; the log validates the batch later.
    """
    writes: list[Write] = []
    transactional: list[Write] = []
    large: list[Write] = []
    large_bytes = node.large_writes.from_bytes
    for topic in request.topic_data:
        missing: ErrorCode | None = None
        name = topic.name
        if context.api_version >= TOPIC_ID_SINCE:
            image = node.metadata.image.topics_by_id.get(topic.topic_id)
            name = image.name if image is not None else ""
            missing = ErrorCode.UNKNOWN_TOPIC_ID if image is None else None
        for part in topic.partition_data:
            tp = tuple.__new__(TopicPartition, (name, part.index))
            log = node.partition(tp)
            batch = part.records if part.records is not None else b""
            write = Write(tp, log, batch, _OK if log is not None else missing or node.absence(tp))
            writes.append(write)
            if log is None:
                continue
            counters = write.counters = node.metrics.topics[name]
            counters.produce_requests += 1
            size_bytes = len(batch)
            attributes = batch[ATTRIBUTES_LOW_BYTE] if size_bytes > ATTRIBUTES_LOW_BYTE else 0
            if name in INTERNAL_TOPICS and context.client_id != ADMIN_CLIENT_ID:
                write.fail(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Clients cannot write to internal topic {name}")
            elif not size_bytes:
                write.fail(ErrorCode.INVALID_RECORD, f"No record batch was sent for partition {tp}")
            elif context.api_version < ZSTD_SINCE and attributes & _CODEC_MASK == _ZSTD:
                why = f"zstd needs Produce v{ZSTD_SINCE} or later, this was v{context.api_version}"
                write.fail(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, why)
            else:
                if attributes & TRANSACTIONAL:
                    transactional.append(write)
                if size_bytes >= large_bytes:
                    large.append(write)
    return writes, transactional, large


def transaction_version(api_version: int) -> int:
    """T16: from Produce v12 on the client speaks the second version of the transaction protocol."""
    return 2 if api_version >= IMPLICIT_ADD_SINCE else 0


def _fail_all(writes: list[Write], error: ErrorCode) -> None:
    for write in writes:
        if write.error is ErrorCode.NONE:
            write.fail(error)


class _Unverified(NamedTuple):
    """Batches of one producer that has no open transaction in their logs yet."""

    producer_id: int
    producer_epoch: int
    writes: list[Write]


def _check_transactions(
    request: ProduceRequest, context: RequestContext, transactional: list[Write], writes: list[Write]
) -> _Unverified | None:
    """Find the batches that the coordinator must verify (T15): those without an open transaction in their log."""
    if request.transactional_id is None:
        _fail_all(writes, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return None
    producer: tuple[int, int] | None = None
    unverified: list[Write] = []
    for write in transactional:
        try:
            header = read_header(write.batch)
        except CorruptBatch:
            continue  # the log rejects the batch and explains the fault
        if producer is not None and header.producer_id != producer[0]:
            for other in transactional:
                other.fail(ErrorCode.INVALID_PRODUCER_ID_MAPPING, MIXED_PRODUCERS)
            return None
        producer = (header.producer_id, header.producer_epoch)
        assert write.log is not None
        guard = write.log.verify(
            header.producer_id, header.producer_epoch, header.base_sequence, transaction_version(context.api_version)
        )
        if guard is not None:
            unverified.append(write)
        write.guard = guard or ALREADY_OPEN
    return _Unverified(*producer, unverified) if producer is not None and unverified else None


def _is_verified(node: _Broker, request: ProduceRequest, unverified: _Unverified) -> bool:
    """Whether the coordinator holds all these partitions in the open transaction, durably."""
    return node.transactions.is_ongoing_with(
        request.transactional_id or "",
        unverified.producer_id,
        unverified.producer_epoch,
        {write.tp for write in unverified.writes},
    )


async def _verify(node: _Broker, transactional_id: str, unverified: _Unverified, context: RequestContext) -> None:
    """Have the coordinator verify or add the partitions, and fail the writes that it rejects (T15, T16).

    If a marker arrives before the append, the write's guard rejects the batch.
    """
    codes = await node.transactions.ensure_partitions(
        transactional_id,
        unverified.producer_id,
        unverified.producer_epoch,
        {write.tp for write in unverified.writes},
        add=context.api_version >= IMPLICIT_ADD_SINCE,
        knows_abortable=context.api_version >= ABORTABLE_SINCE,
        caller=context,
    )
    for write in unverified.writes:
        code = codes[write.tp]
        if code is not ErrorCode.NONE:
            write.fail(code, f"The transaction of {transactional_id!r} takes no batch for {write.tp}: {code.name}")


def _update_from_ticket(node: _Broker, write: Write) -> None:
    """Fail the write if its ticket failed. A ticket that is not settled belongs to a log that went offline."""
    ticket = write.ticket
    if ticket is None or write.error is not _OK or (ticket.is_settled and ticket.error is _OK):
        return
    if ticket.is_settled:
        write.fail(ticket.error, ticket.message)
    elif ticket.log.disowned:
        write.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{write.tp} is not led by this broker any more")
    else:
        write.fail(ErrorCode.KAFKA_STORAGE_ERROR, f"{write.tp} went offline: a flush failed")
    _count_failure(node, write)


def _count_failure(node: _Broker, write: Write) -> None:
    (write.counters or node.metrics.no_topic).failed_produce_requests += 1


def _answer(node: _Broker, request: ProduceRequest, writes: list[Write], tickets: list[Ticket]) -> Ready:
    """The reply: when durable (acks=all), at once (acks=1), or none (acks=0)."""
    if request.acks == ACKS_ALL or (request.acks == ACKS_LEADER and any(ticket.log.binds_late for ticket in tickets)):
        return _Acknowledgement(node, request, writes, tickets)
    if request.acks == ACKS_NONE:
        failed = next((write for write in writes if write.error is not _OK), None)
        if failed is not None:
            raise CloseConnection(f"a write with acks=0 to {failed.tp} failed with {failed.error.name}")
        return None
    return _response(node, request, writes)


def _response(node: _Broker, request: ProduceRequest, writes: Sequence[Write]) -> ProduceResponse:
    """The response, with the address of every other leader that it names (KIP-951)."""
    topics: list[TopicProduceResponse] = []
    leaders: set[Leader] = set()
    each = iter(writes)
    for topic in request.topic_data:
        answers: list[PartitionProduceResponse] = []
        for part in topic.partition_data:
            write = next(each)
            ticket = write.ticket
            if write.error is not _OK or ticket is None:
                answers.append(_refusal(node, write, leaders))
                continue
            answers.append(
                PartitionProduceResponse(
                    index=part.index,
                    base_offset=ticket.base_offset,
                    log_append_time_ms=ticket.log_append_time_ms,
                    log_start_offset=ticket.log_start_offset,
                )
            )
        topics.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers))
    if not leaders:
        return ProduceResponse(responses=topics)
    addresses = [
        NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack) for node_id, _, host, port, rack in leaders
    ]
    return ProduceResponse(responses=topics, node_endpoints=addresses)


def _refusal(node: _Broker, write: Write, leaders: "set[Leader]") -> PartitionProduceResponse:
    """The response for a partition that appended nothing. Adds the partition's leader to `leaders`."""
    answer = PartitionProduceResponse(
        index=write.tp.partition, error_code=write.error, error_message=write.message, base_offset=-1
    )
    if write.ticket is not None:
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in write.ticket.record_errors
        ]
    leader = node.leader_of(write.tp)
    if leader is not None:
        leaders.add(leader)
        if write.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            answer.current_leader = LeaderIdAndEpoch(leader_id=leader.node_id, leader_epoch=leader.epoch)
    return answer
