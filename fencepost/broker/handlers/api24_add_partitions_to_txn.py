"""AddPartitionsToTxn (24): add partitions to a transaction; the first partition begins it.

v0-5 are served. v0-3 are for clients and hold one transaction; v2 knows PRODUCER_FENCED (KIP-588). v4 is for brokers
and holds many transactions; each can be verified only (KIP-890 part 1). v5 knows TRANSACTION_ABORTABLE. v4 and v5 add
partitions for a client of TV2.
"""

from collections.abc import Iterable, Mapping

import trio

from fencepost.broker.network.context import RequestContext
from fencepost.broker.network.reply import Reply, reply_with
from fencepost.broker.ports import Broker
from fencepost.broker.security.checks import brokers_only, denied_topics
from fencepost.coordinator.metadata.topic_names import is_internal
from fencepost.coordinator.txn.commands import Answer, Waiting
from fencepost.coordinator.txn.wire_codes import by_partition, visible
from fencepost.protocol.admin_enums import AclOperation
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api24_add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from fencepost.protocol.topics import TopicPartition

BATCHED_SINCE = 4


def handle(node: Broker, request: AddPartitionsToTxnRequest, context: RequestContext) -> Reply:
    """Add the partitions, or verify that they were added."""
    if context.api_version >= BATCHED_SINCE:
        return brokers_only(node, request, context) or _handle_batch(node, request, context)
    wanted = frozenset(_partitions(request.v3_and_below_topics))
    if refused := _denied(node, wanted, context) or node.transactions.refused(wanted):
        return _response(request, refused, context)
    result = node.transactions.adding(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        wanted,
        0,
        context,
    )
    return reply_with(lambda answer: _response(request, by_partition(wanted, answer), context), result)


def _denied(
    node: Broker, wanted: frozenset[TopicPartition], context: RequestContext
) -> Mapping[TopicPartition, ErrorCode]:
    """If the client may not write to a topic: an error for each partition, because all are added or none.

    Clients may never add an internal topic, with or without an authorizer: the marker would be in a coordinator's log.
    """
    names = {tp.topic for tp in wanted}
    internal = set(filter(is_internal, names))
    refused = internal | denied_topics(node, context, AclOperation.WRITE, names - internal)
    if not refused:
        return {}
    missing = node.transactions.refused([tp for tp in wanted if tp.topic not in refused])
    codes = {tp: missing.get(tp, ErrorCode.OPERATION_NOT_ATTEMPTED) for tp in wanted}
    return codes | {tp: ErrorCode.TOPIC_AUTHORIZATION_FAILED for tp in wanted if tp.topic in refused}


def _response(
    request: AddPartitionsToTxnRequest, codes: Mapping[TopicPartition, ErrorCode], context: RequestContext
) -> AddPartitionsToTxnResponse:
    """The result of each partition, in a request for one transaction."""
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=_results(request.v3_and_below_topics, codes, context)
    )


def _handle_batch(node: Broker, request: AddPartitionsToTxnRequest, context: RequestContext) -> Reply:
    """Process the transactions together, so that those that wait share a round of flushes."""
    found = [_join(node, transaction, context) for transaction in request.transactions]
    waiting = {number: one for number, one in enumerate(found) if not isinstance(one, Mapping)}
    codes = {number: one for number, one in enumerate(found) if isinstance(one, Mapping)}
    if not waiting:
        return _batch_response(request, codes, context)
    return _wait(request, waiting, codes, context)


def _join(
    node: Broker, transaction: AddPartitionsToTxnTransaction, context: RequestContext
) -> Mapping[TopicPartition, ErrorCode] | Waiting:
    wanted = frozenset(_partitions(transaction.topics))
    answer = node.transactions.refused(wanted) or node.transactions.joining(
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        wanted,
        2,
        transaction.verify_only,
        context,
    )
    return by_partition(wanted, answer) if isinstance(answer, Answer) else answer


async def _wait(
    request: AddPartitionsToTxnRequest,
    waiting: Mapping[int, Waiting],
    codes: dict[int, Mapping[TopicPartition, ErrorCode]],
    context: RequestContext,
) -> AddPartitionsToTxnResponse:
    async def wait(number: int, answer: Waiting) -> None:
        codes[number] = by_partition(frozenset(_partitions(request.transactions[number].topics)), await answer)

    async with trio.open_nursery() as nursery:
        for number, answer in waiting.items():
            nursery.start_soon(wait, number, answer)
    return _batch_response(request, codes, context)


def _batch_response(
    request: AddPartitionsToTxnRequest,
    codes: Mapping[int, Mapping[TopicPartition, ErrorCode]],
    context: RequestContext,
) -> AddPartitionsToTxnResponse:
    """The result of each transaction, by its place in the request."""
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id,
                topic_results=_results(transaction.topics, codes[number], context),
            )
            for number, transaction in enumerate(request.transactions)
        ]
    )


def _partitions(topics: Iterable[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, partition) for topic in topics for partition in topic.partitions]


def _results(
    topics: Iterable[AddPartitionsToTxnTopic], codes: Mapping[TopicPartition, ErrorCode], context: RequestContext
) -> list[AddPartitionsToTxnTopicResult]:
    """The codes in the order and grouping of the request."""
    if not any(codes.values()):
        return _all_added(topics)
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=partition,
                    partition_error_code=visible(
                        context.api_key, context.api_version, codes[TopicPartition(topic.name, partition)]
                    ),
                )
                for partition in topic.partitions
            ],
        )
        for topic in topics
    ]


def _all_added(topics: Iterable[AddPartitionsToTxnTopic]) -> list[AddPartitionsToTxnTopicResult]:
    """NONE for every partition: the result of nearly every request."""
    made = AddPartitionsToTxnPartitionResult
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                made(partition_index=partition, partition_error_code=0) for partition in topic.partitions
            ],
        )
        for topic in topics
    ]
