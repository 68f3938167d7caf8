"""TxnShareAcknowledge (1093): acknowledge acquired records in a transaction; the response waits until that is durable.

v0 is served with `unstable.api.versions.enable`. It adds the partitions of `__share_group_state` to the transaction
implicitly, as TxnOffsetCommit v5 does (KIP-890), so the producer has to end it by EndTxn v5. The
end of the transaction decides what becomes of the records. A client that receives an error aborts.
"""

from collections.abc import Mapping, Sequence

from fencepost.broker.network.context import RequestContext
from fencepost.broker.network.reply import Reply
from fencepost.broker.ports import Broker
from fencepost.broker.share.change import Change
from fencepost.broker.share.led import LedPartition, client_error
from fencepost.broker.share.requests import Answer, Batch, batches_of, by_topic, is_member_id, named, problem
from fencepost.broker.share.sessions import TopicIdPartition
from fencepost.broker.share.values import AckBatch, AckType, Refused
from fencepost.coordinator.ports import ProducerTag, coordinator_error
from fencepost.coordinator.share.values import ShareKey
from fencepost.coordinator.txn.causes import EXPLAINED
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api1093_txn_share_acknowledge import (
    TxnShareAcknowledgePartitionResponse,
    TxnShareAcknowledgeRequest,
    TxnShareAcknowledgeResponse,
    TxnShareAcknowledgeTopicResponse,
)
from fencepost.protocol.topics import SHARE_STATE_TOPIC, TopicPartition

Asked = Mapping[TopicIdPartition, Sequence[Batch]]


def handle(node: Broker, request: TxnShareAcknowledgeRequest, context: RequestContext) -> Reply:
    """Refuse what makes no sense; else have the transaction decide on the records."""
    if not node.share_protocol or not node.place.leads_all:
        return TxnShareAcknowledgeResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            error_message="Brokers of a cluster take no acknowledgements of share groups into transactions.",
        )
    if not request.transactional_id or not request.group_id or not is_member_id(request.member_id):
        return TxnShareAcknowledgeResponse(
            error_code=ErrorCode.INVALID_REQUEST,
            error_message="The request has no transactional id, group id or valid member id.",
        )
    return _acknowledge(node, request, context)


async def _acknowledge(
    node: Broker, request: TxnShareAcknowledgeRequest, context: RequestContext
) -> TxnShareAcknowledgeResponse:
    asked = batches_of(request.topics)
    answers: dict[TopicIdPartition, Answer] = {}
    for part, name in named(node, context, asked).items():
        if not _makes_sense(asked[part]):
            answers[part] = Answer(ErrorCode.INVALID_REQUEST)
        elif isinstance(name, ErrorCode):
            answers[part] = Answer(name)
    usable = {part: batches for part, batches in asked.items() if part not in answers}
    if usable and (error := await _join(node, request, usable, context)):
        return TxnShareAcknowledgeResponse(error_code=error)
    answers |= await _store(node, request, usable, context)
    parts = {
        part: TxnShareAcknowledgePartitionResponse(
            partition_index=part.partition, error_code=error, error_message=message
        )
        for part, (error, message) in answers.items()
    }
    return TxnShareAcknowledgeResponse(
        responses=[
            TxnShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=found)
            for topic_id, found in by_topic(parts).items()
        ]
    )


def _makes_sense(batches: Sequence[Batch]) -> bool:
    """Whether there are batches, and valid ones: a transaction cannot release records, or renew locks."""
    is_valid = batches and not problem(batches, may_renew=False, is_renewal=False)
    return bool(is_valid) and all(AckType.RELEASE not in batch.acknowledge_types for batch in batches)


async def _join(node: Broker, request: TxnShareAcknowledgeRequest, usable: Asked, context: RequestContext) -> ErrorCode:
    """Add the partitions of `__share_group_state` to the transaction; why they could not be added.

    After NONE, no other task has run before the return (row T16).
    """
    states = {
        TopicPartition(SHARE_STATE_TOPIC, node.share_states.partition_of(ShareKey(request.group_id, *part)))
        for part in usable
    }
    producer = request.producer_id, request.producer_epoch
    results = await node.transactions.ensure_partitions(
        request.transactional_id, *producer, states, add=True, caller=context
    )
    return coordinator_error(next(filter(None, results.values()), ErrorCode.NONE))


async def _store(
    node: Broker, request: TxnShareAcknowledgeRequest, usable: Asked, context: RequestContext
) -> dict[TopicIdPartition, Answer]:
    """Take the acknowledgements and append them; no other task runs between the call and the append."""
    answers: dict[TopicIdPartition, Answer] = {}
    changes: dict[TopicIdPartition, tuple[LedPartition, Change]] = {}
    for part, batches in usable.items():
        led = node.shares.find(request.group_id, part)
        if led is None or not led.active:  # a restart, or the end of the group's last session: no member holds anything
            answers[part] = Answer(ErrorCode.INVALID_RECORD_STATE, "The records are not acquired by the member.")
            continue
        taken = [AckBatch(batch.first_offset, batch.last_offset, batch.acknowledge_types) for batch in batches]
        try:
            change = led.core.acknowledge_in(request.member_id, taken, request.producer_id)
        except Refused as refused:
            answers[part] = Answer(refused.error, str(refused))
        else:
            changes[part] = led, change  # empty if repeated: then the answer waits for what the first request wrote
    producer = ProducerTag(request.producer_id, request.producer_epoch)
    errors = await node.shares.store_in(producer, list(changes.values()))
    for part, error in zip(changes, errors, strict=True):
        answers[part] = Answer(error if error in EXPLAINED else client_error(error))
    for error in EXPLAINED.intersection(errors):
        name, shown = request.transactional_id, (request.producer_id, request.producer_epoch)
        reason = f"the state partition of group {request.group_id!r} knows a newer epoch of the producer"
        node.transactions.history.refused_write(
            name, node.transactions.ids.state_of(name), shown, error, reason, context
        )
    return answers
