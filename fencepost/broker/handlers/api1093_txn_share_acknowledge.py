"""TxnShareAcknowledge (1093): acknowledge acquired records in a transaction; the response waits until that is durable.

v0 is served with `unstable.api.versions.enable`. It adds the partitions of `__share_group_state` to the transaction
implicitly, as TxnOffsetCommit v5 does (KIP-890), so the producer has to end it by EndTxn v5. The
end of the transaction decides what becomes of the records. A client that receives an error aborts.
"""

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack

from fencepost.broker.network.context import RequestContext
from fencepost.broker.network.reply import Reply
from fencepost.broker.ports import Broker
from fencepost.broker.security.checks import brokers_only, is_allowed
from fencepost.broker.share.change import Change
from fencepost.broker.share.joining import join, write_in_transaction
from fencepost.broker.share.led import LedPartition, client_error
from fencepost.broker.share.requests import Answer, Batch, batches_of, by_topic, is_member_id, named, problem
from fencepost.broker.share.sessions import TopicIdPartition
from fencepost.broker.share.undecided import UndecidedPartitions
from fencepost.broker.share.values import AckBatch, AckType, Refused
from fencepost.coordinator.ports import ProducerTag
from fencepost.coordinator.share.records import NOT_KNOWN
from fencepost.coordinator.share.values import UNINITIALIZED, ShareKey, StateBatch, StateUpdate
from fencepost.coordinator.txn.causes import EXPLAINED
from fencepost.protocol.admin_enums import AclOperation, AclResourceType
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api1093_txn_share_acknowledge import (
    TxnShareAcknowledgePartitionResponse,
    TxnShareAcknowledgeRequest,
    TxnShareAcknowledgeResponse,
    TxnShareAcknowledgeTopicResponse,
)

OF_TRANSACTION = EXPLAINED | {
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.PRODUCER_FENCED,
}
"""What a transaction's coordinator answers, which clients of transactions know."""

Asked = Mapping[TopicIdPartition, Sequence[Batch]]


def handle(node: Broker, request: TxnShareAcknowledgeRequest, context: RequestContext) -> Reply:
    """Refuse what makes no sense; else have the transaction decide on the records."""
    if request.updates:
        return _keep(node, request, context)
    if not node.share_protocol:
        return TxnShareAcknowledgeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
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
    if node.shares.undecided is not None:
        stored = await _store_elsewhere(node, request, usable, context, node.shares.undecided)
        refused = next((one.error for one in stored.values() if one.error in OF_TRANSACTION), None)
        if refused is not None:
            return TxnShareAcknowledgeResponse(error_code=refused)
        return _response(answers | stored)
    producer, keys = _producer(request), [ShareKey(request.group_id, *part) for part in usable]
    if usable and (error := await join(node, request.transactional_id, producer, keys, context)):
        return TxnShareAcknowledgeResponse(error_code=error)
    return _response(answers | await _store(node, request, usable, context))


def _producer(request: TxnShareAcknowledgeRequest) -> ProducerTag:
    return ProducerTag(request.producer_id, request.producer_epoch)


def _response(answers: Mapping[TopicIdPartition, Answer]) -> TxnShareAcknowledgeResponse:
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


async def _store(
    node: Broker, request: TxnShareAcknowledgeRequest, usable: Asked, context: RequestContext
) -> dict[TopicIdPartition, Answer]:
    """Take the acknowledgements and append them; no other task runs between the call and the append."""
    answers, changes = _take(node, request, usable, again=False)
    errors = await node.shares.store_in(_producer(request), list(changes.values()))
    for part, error in zip(changes, errors, strict=True):
        answers[part] = Answer(error if error in EXPLAINED else client_error(error))
    _explain(node, request, errors, context)
    return answers


def _explain(
    node: Broker, request: TxnShareAcknowledgeRequest, errors: Sequence[ErrorCode], context: RequestContext
) -> None:
    """Keep why the state's partition refused the producer."""
    for error in EXPLAINED.intersection(errors):
        name, shown = request.transactional_id, (request.producer_id, request.producer_epoch)
        reason = f"the state partition of group {request.group_id!r} knows a newer epoch of the producer"
        node.transactions.history.refused_write(
            name, node.transactions.ids.state_of(name), shown, error, reason, context
        )


def _take(
    node: Broker, request: TxnShareAcknowledgeRequest, usable: Asked, *, again: bool
) -> tuple[dict[TopicIdPartition, Answer], dict[TopicIdPartition, tuple[LedPartition, Change]]]:
    """Take the acknowledgements: the answers of those that need not be stored, and what is to be stored."""
    answers: dict[TopicIdPartition, Answer] = {}
    changes: dict[TopicIdPartition, tuple[LedPartition, Change]] = {}
    for part, batches in usable.items():
        led = node.shares.find(request.group_id, part)
        if led is None or not led.active:  # a restart, or the end of the group's last session: no member holds anything
            answers[part] = Answer(ErrorCode.INVALID_RECORD_STATE, "The records are not acquired by the member.")
            continue
        taken = [AckBatch(batch.first_offset, batch.last_offset, batch.acknowledge_types) for batch in batches]
        try:
            change = led.core.acknowledge_in(request.member_id, taken, request.producer_id, again=again)
        except Refused as refused:
            answers[part] = Answer(refused.error, str(refused))
        else:
            changes[part] = led, change  # empty if repeated: then the answer waits for what the first request wrote
    return answers, changes


# Where other brokers keep states


async def _store_elsewhere(
    node: Broker,
    request: TxnShareAcknowledgeRequest,
    usable: Asked,
    context: RequestContext,
    undecided: UndecidedPartitions,
) -> dict[TopicIdPartition, Answer]:
    """Take the acknowledgements, and have them stored by the brokers that keep the states.

    A repeated request is stored again: the producer's transaction before may have ended without this leader's
    knowledge. One request for a share partition at a time, so that none undoes what another one did.
    """
    async with AsyncExitStack() as stack:
        for part in sorted(usable):
            if (led := node.shares.find(request.group_id, part)) is not None:
                await stack.enter_async_context(led.transacting)
        answers, changes = _take(node, request, usable, again=True)
        errors = await undecided.store(request.transactional_id, _producer(request), list(changes.values()))
    for part, error in zip(changes, errors, strict=True):
        answers[part] = Answer(error if error in OF_TRANSACTION else client_error(error))
    _explain(node, request, errors, context)
    return answers


async def _keep(
    node: Broker, request: TxnShareAcknowledgeRequest, context: RequestContext
) -> TxnShareAcknowledgeResponse:
    """The leader of partitions has their states join a transaction, on the broker that keeps them."""
    # The rights of the API are those of clients, which this must not be for.
    is_broker = is_allowed(node, context, AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER)
    if not is_broker or brokers_only(node, request, context) is not None:
        return TxnShareAcknowledgeResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    updates = {
        ShareKey(request.group_id, topic.topic_id, one.partition_index): StateUpdate(
            one.state_epoch,
            one.leader_epoch,
            UNINITIALIZED,
            NOT_KNOWN,
            [
                StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
                for batch in one.batches
            ],
        )
        for topic in request.updates
        for one in topic.partitions
    }
    found = await write_in_transaction(node, request.transactional_id, _producer(request), updates)
    return _response({TopicIdPartition(*key[1:]): Answer(*outcome) for key, outcome in found.items()})
