"""The reply to Produce: the result of every partition's batch, and the responses made of them."""

from collections.abc import Callable, Sequence

from fencepost.broker.brokers import Leader, other_leader
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.producer_state import Refusal, VerificationGuard
from fencepost.broker.log.results import Ticket
from fencepost.broker.log.storage.store import Bytes
from fencepost.broker.log.validation import Accepted
from fencepost.broker.metrics.counters import TopicCounters
from fencepost.broker.network.context import CloseConnection, RequestContext
from fencepost.broker.network.reply import Durable, Encoded, Ready
from fencepost.broker.ports import Broker
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

ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1
_OK = ErrorCode.NONE  # a global: reading a member from its enum costs twenty times as much


class Write:
    """One partition of the request: its batch, its log, and the result."""

    __slots__ = ("batch", "checked", "counters", "error", "guard", "log", "message", "template", "ticket", "tp")

    def __init__(self, tp: TopicPartition, log: PartitionLog | None, batch: Bytes, error: ErrorCode) -> None:
        self.tp = tp
        self.log = log
        self.batch = batch
        self.error = error
        self.message: str | None = None
        self.guard: VerificationGuard | None = None
        self.checked: Accepted | Refusal | None = None
        """The result of validation, if the batch was staged or checked in a thread."""
        self.ticket: Ticket | None = None
        self.counters: TopicCounters | None = None
        """The topic's counters, if the partition has a log here."""
        self.template: Callable[[Ticket], Encoded] | None = None
        """Encodes the whole response if nothing failed; only for a repeated request, which has one write."""

    def fail(self, error: ErrorCode, message: str | None = None) -> None:
        self.error = error
        self.message = message


class _Acknowledgement(Durable):
    """The response to acks=all."""

    __slots__ = ("_context", "_node", "_request", "_writes")

    def __init__(
        self,
        node: Broker,
        request: ProduceRequest,
        context: RequestContext,
        writes: Sequence[Write],
        tickets: list[Ticket],
    ) -> None:
        self.response = _response(node, request, context, writes)
        self.tickets = tickets
        self._node = node
        self._context = context
        self._request = request
        self._writes = writes

    def revise(self) -> None:
        """Replace the acknowledgement of a batch by an error if its log went offline before the batch was durable."""
        for write in self._writes:
            _update_from_ticket(self._node, write)
        self.response = _response(self._node, self._request, self._context, self._writes)


def _update_from_ticket(node: Broker, write: Write) -> None:
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
    count_failure(node, write)


def count_failure(node: Broker, write: Write) -> None:
    (write.counters or node.metrics.no_topic).failed_produce_requests += 1


def reply_to(
    node: Broker, request: ProduceRequest, context: RequestContext, writes: list[Write], tickets: list[Ticket]
) -> Ready:
    """The reply: when durable (acks=all), at once (acks=1), or none (acks=0)."""
    if request.acks == ACKS_ALL or (
        request.acks == ACKS_LEADER and any(ticket.log.commits_remotely for ticket in tickets)
    ):
        return _Acknowledgement(node, request, context, writes, tickets)
    if request.acks == ACKS_NONE:
        failed = next((write for write in writes if write.error is not _OK), None)
        if failed is not None:
            raise CloseConnection(f"a write with acks=0 to {failed.tp} failed with {failed.error.name}")
        return None
    return _response(node, request, context, writes)


def _response(
    node: Broker, request: ProduceRequest, context: RequestContext, writes: Sequence[Write]
) -> ProduceResponse | Encoded:
    """The response, with the address of every other leader that it names (KIP-951)."""
    first = writes[0] if writes else None
    if first is not None and first.template is not None and first.error is _OK and first.ticket is not None:
        return first.template(first.ticket)
    topics: list[TopicProduceResponse] = []
    leaders: dict[int, Leader] = {}
    each = iter(writes)
    for topic in request.topic_data:
        answers: list[PartitionProduceResponse] = []
        for part in topic.partition_data:
            write = next(each)
            ticket = write.ticket
            if write.error is not _OK or ticket is None:
                answers.append(_refusal(node, context, write, leaders))
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
        NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
        for node_id, _, host, port, rack in leaders.values()
    ]
    return ProduceResponse(responses=topics, node_endpoints=addresses)


def _refusal(
    node: Broker, context: RequestContext, write: Write, leaders: dict[int, Leader]
) -> PartitionProduceResponse:
    """The response for a partition that appended nothing. Adds the partition's leader to `leaders`, by id."""
    answer = PartitionProduceResponse(
        index=write.tp.partition, error_code=write.error, error_message=write.message, base_offset=-1
    )
    if write.ticket is not None:
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in write.ticket.record_errors
        ]
    if write.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        leader = other_leader(node, context, write.tp)
        if leader is not None:
            leaders[leader.node_id] = leader
            answer.current_leader = LeaderIdAndEpoch(leader_id=leader.node_id, leader_epoch=leader.epoch)
    return answer
