"""Produce (0): append one batch per partition, check the transaction it belongs to, answer when it is safe.

v3-13 are served (0-2 are advertised for old librdkafka, KAFKA-18659, and refused as Kafka refuses them: by closing).
v5 answers the log start offset, v7 may carry zstd, v8 answers per-record errors (KIP-467), v11 knows
TRANSACTION_ABORTABLE, v12 adds partitions to the transaction by itself (KIP-890, T16), v13 names topics by id.
"""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from fencepost.broker.log.partition import AppendOrigin, PartitionLog
from fencepost.broker.log.producer_state import ALREADY_OPEN, VerificationGuard
from fencepost.broker.log.results import Ticket
from fencepost.broker.log.validation import Accepted
from fencepost.broker.network.context import CloseConnection, RequestContext
from fencepost.broker.network.reply import Durable, Ready, Reply
from fencepost.broker.transactions.refused_writes import explain_refused
from fencepost.coordinator.metadata.topic_names import is_internal
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api00_produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from fencepost.protocol.record_batch import CorruptBatch, read_header
from fencepost.protocol.topics import TopicPartition

if TYPE_CHECKING:
    from fencepost.broker.metrics.counters import TopicCounters
    from fencepost.broker.node import Node

ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1
ZSTD_SINCE = 7
ABORTABLE_SINCE = 11
IMPLICIT_ADD_SINCE = 12
TOPIC_ID_SINCE = 13

ATTRIBUTES_LOW_BYTE = 22
TRANSACTIONAL = 0x10
_CODEC_MASK, _ZSTD = 0x07, 4
_OK = ErrorCode.NONE
MIXED_PRODUCERS = "One request carries several producers' transactions"
ADMIN_CLIENT_ID = "__admin_client"
"""The one client id that Kafka lets write to internal topics (its tools use it)."""


class Write:
    """One partition of the request: what to append, where, and the answer that is filled in."""

    __slots__ = ("answer", "batch", "checked", "counters", "error", "guard", "log", "message", "ticket", "tp")

    def __init__(self, tp: TopicPartition, log: PartitionLog | None, batch: Any, error: ErrorCode) -> None:
        self.tp = tp
        self.log = log
        self.batch = batch
        self.error = error
        self.message: str | None = None
        self.guard: VerificationGuard | None = None
        self.checked: Accepted | None = None
        """What became known of the batch while it was staged."""
        self.answer: Any = PartitionProduceResponse(index=tp.partition, base_offset=-1)
        self.ticket: Ticket | None = None
        """What the log answered, unless it refused at once."""
        self.counters: TopicCounters | None = None

    @property
    def is_transactional(self) -> bool:
        """By the batch's own attributes; whether the batch is sound is for the log to say."""
        batch = self.batch
        return len(batch) > ATTRIBUTES_LOW_BYTE and bool(batch[ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL)

    def fail(self, error: ErrorCode, message: str | None = None) -> None:
        """Refuse this partition's batch."""
        self.error = error
        self.message = message


class _Acknowledgement(Durable):
    """The response to acks=all."""

    __slots__ = ("_node", "_writes")

    def __init__(self, response: Any, tickets: Collection[Ticket], node: "Node", writes: Sequence[Write]) -> None:
        super().__init__(response, tickets)
        self._node = node
        self._writes = writes

    def revise(self) -> None:
        """No ack for what was appended to a log that went offline before it was durable."""
        for write in self._writes:
            revise(self._node, write)


def handle(node: "Node", request: Any, context: RequestContext) -> Reply:
    """Append every batch, in order; the answer waits for the disk where acks=all asks for it.

    A coroutine is returned only where a coordinator must be asked first, a thread write a large batch, or a writer be
    held back.
    """
    topics, writes = _resolve(node, request, context)
    if request.acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
        _fail_all(writes, ErrorCode.INVALID_REQUIRED_ACKS)
    else:
        transactional = [write for write in writes if write.error is _OK and write.is_transactional]
        if transactional:
            unsettled = _check_transactions(request, context, transactional, writes)
            if unsettled is not None and not _is_settled(node, request, unsettled):
                return _settle_first(node, request, context, topics, writes, unsettled)
    large = _large_among(node, writes)
    if large:
        return _stage_first(node, request, context, topics, writes, large)
    waits = _append_all(node, request, context, writes)
    if request.acks != ACKS_ALL and node.commit.over_backlog(waits):
        return _throttle_first(node, request, topics, writes, waits)
    return _answer(node, request, topics, writes, waits)


async def _settle_first(
    node: "Node",
    request: Any,
    context: RequestContext,
    topics: list[Any],
    writes: list[Write],
    unsettled: "_Unsettled",
) -> Ready:
    await _settle(node, request.transactional_id, unsettled, context)
    large = _large_among(node, writes)
    if large:
        return await _stage_first(node, request, context, topics, writes, large)
    return await _throttle_first(node, request, topics, writes, _append_all(node, request, context, writes))


async def _stage_first(
    node: "Node",
    request: Any,
    context: RequestContext,
    topics: list[Any],
    writes: list[Write],
    large: list[Write],
) -> Ready:
    version = transaction_version(context.api_version)
    async with node.large_writes.staged(large, version, node.clock.now_ms()):
        waits = _append_all(node, request, context, writes)
    return await _throttle_first(node, request, topics, writes, waits)


def _large_among(node: "Node", writes: list[Write]) -> list[Write]:
    """The batches that are better written by a thread."""
    large = node.large_writes
    return [
        write
        for write in writes
        if len(write.batch) >= large.from_bytes
        and write.error is _OK
        and write.log is not None
        and large.wants(write.log)
    ]


async def _throttle_first(
    node: "Node", request: Any, topics: list[Any], writes: list[Write], waits: dict[PartitionLog, Ticket]
) -> Ready:
    if request.acks != ACKS_ALL:
        await node.commit.throttle(waits)
    return _answer(node, request, topics, writes, waits)


def _append_all(node: "Node", request: Any, context: RequestContext, writes: list[Write]) -> dict[PartitionLog, Ticket]:
    """Append what has not failed; the newest ticket of each log, on which the answer waits."""
    waits: dict[PartitionLog, Ticket] = {}
    now_ms = node.clock.now_ms()
    version = transaction_version(context.api_version)
    for write in writes:
        if write.error is _OK:
            assert write.log is not None
            info = write.log.append(
                write.batch,
                AppendOrigin.CLIENT,
                now_ms,
                transaction_version=version,
                guard=write.guard,
                checked=write.checked,
            )
            note_outcome(node, write, info, waits)
            if info.error is not _OK:
                explain_refused(node, request.transactional_id, write, context)
        else:
            _fill_error(node, write)
            if write.message is MIXED_PRODUCERS:
                explain_refused(node, request.transactional_id, write, context)
    if request.acks != ACKS_ALL:
        for log in waits:
            node.commit.schedule(log)
    return waits


def _resolve(node: "Node", request: Any, context: RequestContext) -> tuple[list[Any], list[Write]]:
    """The answer's topics and one write per partition, those that can not be written marked with their error."""
    version = context.api_version
    topics: list[Any] = []
    writes: list[Write] = []
    for topic in request.topic_data:
        missing: ErrorCode | None = None
        name = topic.name
        if version >= TOPIC_ID_SINCE:
            image = node.metadata.image.topics_by_id.get(topic.topic_id)
            name = image.name if image is not None else ""
            missing = ErrorCode.UNKNOWN_TOPIC_ID if image is None else None
        answers: list[Any] = []
        for part in topic.partition_data:
            tp = TopicPartition(name, part.index)
            log = node.partition(tp)
            batch = part.records if part.records is not None else b""
            write = Write(tp, log, batch, ErrorCode.NONE if log is not None else missing or node.absence(tp))
            if log is not None:
                write.counters = node.metrics.topic(name)
                write.counters.produce_requests += 1
                _check_batch(node, write, version, context)
            writes.append(write)
            answers.append(write.answer)
        topics.append(TopicProduceResponse(name=name, topic_id=topic.topic_id, partition_responses=answers))
    return topics, writes


def _check_batch(node: "Node", write: Write, version: int, context: RequestContext) -> None:
    """What depends on the request's version or on the topic, not on the log's state (L8, L9)."""
    batch = write.batch
    if is_internal(write.tp.topic) and context.client_id != ADMIN_CLIENT_ID:
        write.fail(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Clients can not write to internal topic {write.tp.topic}")
    elif not len(batch):
        write.fail(ErrorCode.INVALID_RECORD, f"No record batch was sent for partition {write.tp}")
    elif version < ZSTD_SINCE and len(batch) > ATTRIBUTES_LOW_BYTE and _codec(batch) == _ZSTD:
        write.fail(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce v{ZSTD_SINCE} or later, this was v{version}"
        )


def _codec(batch: Any) -> int:
    return int(batch[ATTRIBUTES_LOW_BYTE]) & _CODEC_MASK


def transaction_version(api_version: int) -> int:
    """T16: from Produce v12 on the client speaks the second version of the transaction protocol."""
    return 2 if api_version >= IMPLICIT_ADD_SINCE else 0


def _fail_all(writes: list[Write], error: ErrorCode) -> None:
    for write in writes:
        if write.error is ErrorCode.NONE:
            write.fail(error)


class _Unsettled(NamedTuple):
    """Batches of one producer, of whose transaction the logs know nothing yet."""

    producer_id: int
    producer_epoch: int
    writes: list[Write]


def _check_transactions(
    request: Any, context: RequestContext, transactional: list[Write], writes: list[Write]
) -> _Unsettled | None:
    """See whether each transactional batch belongs to a transaction, and which of that the coordinator must say (T15).

    Where the log already has an open transaction of the producer, that was settled by an earlier batch.
    """
    if request.transactional_id is None:
        _fail_all(writes, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return None
    producer: tuple[int, int] | None = None
    unsettled: list[Write] = []
    for write in transactional:
        try:
            header = read_header(write.batch)
        except CorruptBatch:
            continue  # the log refuses it, and says how it is wrong
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
            unsettled.append(write)
        write.guard = guard or ALREADY_OPEN
    return _Unsettled(*producer, unsettled) if producer is not None and unsettled else None


def _is_settled(node: "Node", request: Any, unsettled: _Unsettled) -> bool:
    """Whether the coordinator has all those partitions in the open transaction, durably: nothing is left to ask."""
    return node.transactions.is_ongoing_with(
        request.transactional_id,
        unsettled.producer_id,
        unsettled.producer_epoch,
        {write.tp for write in unsettled.writes},
    )


async def _settle(node: "Node", transactional_id: str, unsettled: _Unsettled, context: RequestContext) -> None:
    """Ask the coordinator, and refuse what it refuses (T15, T16); what a marker overtakes, its guard refuses."""
    codes = await node.transactions.ensure_partitions(
        transactional_id,
        unsettled.producer_id,
        unsettled.producer_epoch,
        {write.tp for write in unsettled.writes},
        add=context.api_version >= IMPLICIT_ADD_SINCE,
        knows_abortable=context.api_version >= ABORTABLE_SINCE,
        caller=context,
    )
    for write in unsettled.writes:
        code = codes[write.tp]
        if code is not ErrorCode.NONE:
            write.fail(code, f"The transaction of {transactional_id!r} takes no batch for {write.tp}: {code.name}")


def note_outcome(node: "Node", write: Write, ticket: Ticket, waits: dict[PartitionLog, Ticket]) -> None:
    """Take what the log said to the batch into the answer, the counters, and what must become durable."""
    log, answer = write.log, write.answer
    assert log is not None
    if ticket.error is not _OK:
        write.fail(ticket.error, ticket.message)
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in ticket.record_errors
        ]
        _fill_error(node, write)
        return
    write.ticket = ticket
    _fill_offsets(answer, ticket)
    newest = waits.get(log)
    if newest is None or ticket.end_offset > newest.end_offset:
        waits[log] = ticket
    counters = write.counters
    if counters is not None and not ticket.duplicate:
        counters.messages_in += ticket.end_offset - ticket.base_offset
        counters.bytes_in += len(write.batch)


def revise(node: "Node", write: Write) -> None:
    """Take into the answer what became of the ticket; one that did not settle is of a log that went offline."""
    ticket = write.ticket
    if ticket is None:
        return
    if ticket.is_settled and ticket.error is _OK:
        _fill_offsets(write.answer, ticket)
        return
    if ticket.is_settled:
        write.fail(ticket.error, ticket.message)
    elif ticket.log.disowned:
        write.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{write.tp} is not led by this broker any more")
    else:
        write.fail(ErrorCode.KAFKA_STORAGE_ERROR, f"{write.tp} went offline: a flush failed")
    write.answer.base_offset = write.answer.log_append_time_ms = write.answer.log_start_offset = -1
    _fill_error(node, write)


def _fill_offsets(answer: Any, ticket: Ticket) -> None:
    answer.base_offset = ticket.base_offset
    answer.log_append_time_ms = ticket.log_append_time_ms
    answer.log_start_offset = ticket.log_start_offset


def _fill_error(node: "Node", write: Write) -> None:
    answer = write.answer
    answer.error_code = write.error
    answer.error_message = write.message
    leader = node.leader_of(write.tp) if write.error is ErrorCode.NOT_LEADER_OR_FOLLOWER else None
    if leader is not None:
        answer.current_leader = LeaderIdAndEpoch(leader_id=leader.node_id, leader_epoch=leader.epoch)
    (write.counters or node.metrics.no_topic).failed_produce_requests += 1


def _answer(
    node: "Node", request: Any, topics: list[Any], writes: list[Write], waits: dict[PartitionLog, Ticket]
) -> Ready:
    """By acks: when durable, at once, or never."""
    if request.acks == ACKS_ALL or (request.acks == ACKS_LEADER and any(log.binds_late for log in waits)):
        response = _response(node, topics, writes)
        return _Acknowledgement(response, waits.values(), node, writes) if waits else response
    if request.acks == ACKS_NONE:
        failed = next((write for write in writes if write.error is not ErrorCode.NONE), None)
        if failed is not None:
            raise CloseConnection(f"a write with acks=0 to {failed.tp} failed with {failed.error.name}")
        return None
    return _response(node, topics, writes)


def _response(node: "Node", topics: list[Any], writes: list[Write]) -> ProduceResponse:
    """The answer, with the address of every other leader that it names (KIP-951)."""
    leaders = {leader for write in writes if write.error is not _OK and (leader := node.leader_of(write.tp))}
    addresses = [NodeEndpoint(node_id=id, host=host, port=port, rack=rack) for id, _, host, port, rack in leaders]
    return ProduceResponse(responses=topics, node_endpoints=addresses)
