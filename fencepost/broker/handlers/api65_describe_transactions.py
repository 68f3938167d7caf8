"""DescribeTransactions (65): the coordinator's state of transactional ids (KIP-664, row T19).

v0 is served. With the tag `explain` (a fencepost extension) the response also holds the transaction's owner and its
fencing history.
"""

from collections import defaultdict
from collections.abc import Iterable

from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import Broker
from fencepost.broker.security.checks import denied, denied_topics, is_allowed
from fencepost.coordinator.txn.causes import Caller, Change, IdHistory, Refusal, describe
from fencepost.protocol.admin_enums import AclOperation, AclResourceType
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api65_describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    HistoryEvent,
    TopicData,
    TransactionHistory,
    TransactionState,
)
from fencepost.protocol.topics import TopicPartition


async def handle(
    node: Broker, request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse:
    """Describe each id. A decided transaction lists the partitions that still lack their marker."""
    ids = request.transactional_ids
    refused = denied(node, context, AclOperation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID, ids)
    error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return DescribeTransactionsResponse(
        transaction_states=[
            TransactionState(error_code=error, transactional_id=name)
            if name in refused
            else await _describe(node, name, request.explain, context)
            for name in ids
        ]
    )


async def _describe(node: Broker, transactional_id: str, explain: bool, context: RequestContext) -> TransactionState:
    """One transaction, without the topics that the client may not see."""
    described = await node.transactions.describe(transactional_id)
    # The history may name topics and groups that the client may not see.
    explain = explain and is_allowed(node, context, AclOperation.DESCRIBE, AclResourceType.CLUSTER, log_denial=False)
    hidden = denied_topics(node, context, AclOperation.DESCRIBE, (tp.topic for tp in described.partitions))
    return TransactionState(
        error_code=described.error,
        transactional_id=transactional_id,
        transaction_state=described.state,
        transaction_timeout_ms=described.timeout_ms,
        transaction_start_time_ms=described.started_ms,
        producer_id=described.producer_id,
        producer_epoch=described.producer_epoch,
        topics=_topics(tp for tp in described.partitions if tp.topic not in hidden),
        history=_history(node.transactions.history.of(transactional_id)) if explain else None,
    )


def _topics(partitions: Iterable[TopicPartition]) -> list[TopicData]:
    topics: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(partitions):
        topics[topic].append(partition)
    return [TopicData(topic=topic, partitions=numbers) for topic, numbers in topics.items()]


def _history(history: IdHistory | None) -> TransactionHistory:
    if history is None:
        return TransactionHistory()
    owner, writer = _id_and_host(history.owner), _id_and_host(history.writer)
    return TransactionHistory(
        owner_client_id=owner[0],
        owner_host=owner[1],
        writer_client_id=writer[0],
        writer_host=writer[1],
        lines=[_line(line) for _, line in history.lines()],
    )


def _id_and_host(caller: Caller | None) -> tuple[str, str]:
    return ("", "") if caller is None else (caller.client_id or "", caller.client_host)


def _line(line: Change | Refusal) -> HistoryEvent:
    if isinstance(line, Refusal):
        return HistoryEvent(
            time_ms=line.at_ms,
            last_time_ms=line.last_ms,
            times=line.times,
            reason=line.cause.reason.value,
            error_code=line.code,
            client_id=line.client_id or "",
            client_host=line.client_host,
            text=f"{line.by} with {line.shown[0]}:{line.shown[1]}: {line.cause.text}",
        )
    return HistoryEvent(
        time_ms=line.at_ms,
        last_time_ms=line.at_ms,
        times=1,
        reason=line.reason.value,
        text=f"{line.before[0]}:{line.before[1]}: {describe(line)}",
    )
