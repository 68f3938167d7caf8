"""DescribeTransactions (65): what the coordinator knows of transactional ids (KIP-664). v0 is served."""

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from fencepost.broker.context import RequestContext
from fencepost.protocol.messages.api65_describe_transactions import (
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from fencepost.protocol.topics import TopicPartition

if TYPE_CHECKING:
    from fencepost.broker.node import Node


async def handle(node: "Node", request: Any, context: RequestContext) -> Any:
    """Describe each id; of a decided transaction, the partitions that still lack their marker."""
    return DescribeTransactionsResponse(
        transaction_states=[await _describe(node, name) for name in request.transactional_ids]
    )


async def _describe(node: "Node", transactional_id: str) -> Any:
    told = await node.transactions.describe(transactional_id)
    return TransactionState(
        error_code=told.error,
        transactional_id=transactional_id,
        transaction_state=told.state,
        transaction_timeout_ms=told.timeout_ms,
        transaction_start_time_ms=told.started_ms,
        producer_id=told.producer_id,
        producer_epoch=told.producer_epoch,
        topics=_topics(told.partitions),
    )


def _topics(partitions: Iterable[TopicPartition]) -> list[Any]:
    topics: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(partitions):
        topics[topic].append(partition)
    return [TopicData(topic=topic, partitions=numbers) for topic, numbers in topics.items()]
