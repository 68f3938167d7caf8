"""Answers that refuse a request: built without the handler, or written over the handler's answer."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api00_produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from fencepost.protocol.messages.api19_create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from fencepost.protocol.messages.api20_delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from fencepost.protocol.messages.api24_add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from fencepost.protocol.messages.api37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from fencepost.protocol.messages.api42_delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from fencepost.protocol.registry import Api
from fencepost.protocol.schema import Value

ResponseT = TypeVar("ResponseT", bound=Value)

HARMLESS = frozenset(
    {
        "Fetch",
        "ListOffsets",
        "Metadata",
        "OffsetFetch",
        "FindCoordinator",
        "DescribeGroups",
        "ConsumerGroupDescribe",
        "ListGroups",
        "OffsetForLeaderEpoch",
        "DescribeConfigs",
        "DescribeCluster",
        "DescribeProducers",
        "DescribeTransactions",
        "ListTransactions",
        "DescribeTopicPartitions",
    }
)
"""APIs that change nothing: the broker answers them, and the answer's codes are overwritten."""

ONE_CODE = frozenset(
    {
        "JoinGroup",
        "SyncGroup",
        "Heartbeat",
        "ConsumerGroupHeartbeat",
        "LeaveGroup",
        "InitProducerId",
        "AddOffsetsToTxn",
        "EndTxn",
    }
)
"""APIs whose answer is one error code, and Kafka's defaults for the rest."""

_NOT_ON_TOP = frozenset({"Fetch", "Metadata"})
"""APIs whose top-level code is about the session or the whole cluster; a partition has its own code."""


def may_refuse(api: Api) -> bool:
    """Whether `refusal` or `overwrite` can refuse the request without letting it take effect."""
    return api.name in HARMLESS or api.name in ONE_CODE or api.name in _BUILDERS


def refusal(api: Api, request: Any, version: int, code: ErrorCode) -> Any:
    """The answer to a request that the handler does not see. Not for the APIs in HARMLESS."""
    if api.name in ONE_CODE:
        answer: Any = api.response()
        answer.error_code = code
        return answer
    return _BUILDERS[api.name](api, request, version, code)


def overwrite(api: Api, response: ResponseT, code: ErrorCode) -> ResponseT:
    """`response` with `code` in every error code that reports the result of the request."""
    _overwrite(response, code, top=api.name not in _NOT_ON_TOP)
    return response


def _overwrite(value: Any, code: ErrorCode, top: bool = True) -> None:
    for field in value._fields:
        inner = getattr(value, field)
        if field == "error_code":
            if top:
                value.error_code = code
        elif field == "partition_error_code":
            value.partition_error_code = code
        elif field in ("records", "base_offset"):
            setattr(value, field, None if field == "records" else -1)
        elif isinstance(inner, list) and inner and isinstance(inner[0], Value):
            for entry in inner:
                _overwrite(entry, code)


def _produce(api: Api, request: ProduceRequest, version: int, code: ErrorCode) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(index=part.index, error_code=code, base_offset=-1)
                    for part in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def _offsets(api: Api, request: Any, version: int, code: ErrorCode) -> Any:
    """OffsetCommit and TxnOffsetCommit."""
    topic_of = getattr(api.module, f"{api.name}ResponseTopic")
    partition_of = getattr(api.module, f"{api.name}ResponsePartition")
    response: Any = api.response
    return response(
        topics=[
            topic_of(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    partition_of(partition_index=part.partition_index, error_code=code) for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _add_partitions(
    api: Api, request: AddPartitionsToTxnRequest, version: int, code: ErrorCode
) -> AddPartitionsToTxnResponse:
    def results(topics: Sequence[AddPartitionsToTxnTopic]) -> list[AddPartitionsToTxnTopicResult]:
        return [
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=code)
                    for number in topic.partitions
                ],
            )
            for topic in topics
        ]

    if version <= 3:
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results(request.v3_and_below_topics))
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(transactional_id=one.transactional_id, topic_results=results(one.topics))
            for one in request.transactions
        ]
    )


def _create_topics(api: Api, request: CreateTopicsRequest, version: int, code: ErrorCode) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(name=topic.name, error_code=code, error_message=_MESSAGE) for topic in request.topics
        ]
    )


def _delete_topics(api: Api, request: DeleteTopicsRequest, version: int, code: ErrorCode) -> DeleteTopicsResponse:
    result = DeletableTopicResult
    named = [result(name=name, error_code=code) for name in request.topic_names] if version <= 5 else []
    listed = [result(name=topic.name, topic_id=topic.topic_id, error_code=code) for topic in request.topics]
    return DeleteTopicsResponse(responses=named or listed)


def _create_partitions(
    api: Api, request: CreatePartitionsRequest, version: int, code: ErrorCode
) -> CreatePartitionsResponse:
    result = CreatePartitionsTopicResult
    return CreatePartitionsResponse(
        results=[result(name=topic.name, error_code=code, error_message=_MESSAGE) for topic in request.topics]
    )


def _delete_groups(api: Api, request: DeleteGroupsRequest, version: int, code: ErrorCode) -> DeleteGroupsResponse:
    result = DeletableGroupResult
    return DeleteGroupsResponse(results=[result(group_id=name, error_code=code) for name in request.groups_names])


_MESSAGE = "refused by a test"

_BUILDERS: dict[str, Callable[[Api, Any, int, ErrorCode], Any]] = {
    "Produce": _produce,
    "OffsetCommit": _offsets,
    "TxnOffsetCommit": _offsets,
    "AddPartitionsToTxn": _add_partitions,
    "CreateTopics": _create_topics,
    "DeleteTopics": _delete_topics,
    "CreatePartitions": _create_partitions,
    "DeleteGroups": _delete_groups,
}
