"""The response to a request that is refused as a whole: Kafka's `getErrorResponse` of its request class.

Most responses have one error code. Here are those with an error for each part of the request, and those in which an
unset number is not the default of its field.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from fencepost.broker.security.ports import RequestInfo
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.registry import API_BY_KEY
from fencepost.protocol.schema import ResponseValue

_MESSAGES = {
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
}
"""Kafka's messages (`Errors`)."""
NULLABLE_PROTOCOL_SINCE = 7
TOPIC_ERRORS_UNTIL = 3
_Refuse = Callable[[ModuleType, Any, int, ErrorCode], ResponseValue]


def refuse(request: Any, context: RequestInfo, error: ErrorCode) -> ResponseValue:
    """The response that refuses the whole request with `error`."""
    api = API_BY_KEY[context.api_key]
    special = _SPECIAL.get(context.api_key)
    if special is not None:
        return special(api.module, request, context.api_version, error)
    fields: dict[str, Any] = {"error_code": error}
    if "error_message" in api.response.__slots__:
        fields["error_message"] = _MESSAGES[error]
    return api.response(**fields)


def _offset_commit(messages: ModuleType, request: Any, _version: int, error: ErrorCode) -> ResponseValue:
    return _commit_topics(messages, "OffsetCommitResponse", request, error)


def _txn_offset_commit(messages: ModuleType, request: Any, _version: int, error: ErrorCode) -> ResponseValue:
    return _commit_topics(messages, "TxnOffsetCommitResponse", request, error)


def _commit_topics(messages: ModuleType, name: str, request: Any, error: ErrorCode) -> ResponseValue:
    topic_of, partition_of = getattr(messages, f"{name}Topic"), getattr(messages, f"{name}Partition")
    response: ResponseValue = getattr(messages, name)(
        topics=[
            topic_of(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    partition_of(partition_index=part.partition_index, error_code=error) for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
    return response


def _join_group(messages: ModuleType, _request: Any, version: int, error: ErrorCode) -> ResponseValue:
    no_protocol = None if version >= NULLABLE_PROTOCOL_SINCE else ""
    response: ResponseValue = messages.JoinGroupResponse(error_code=error, generation_id=-1, protocol_name=no_protocol)
    return response


def _init_producer_id(messages: ModuleType, _request: Any, _version: int, error: ErrorCode) -> ResponseValue:
    response: ResponseValue = messages.InitProducerIdResponse(error_code=error, producer_id=-1, producer_epoch=-1)
    return response


def _add_partitions(messages: ModuleType, request: Any, version: int, error: ErrorCode) -> ResponseValue:
    if version > TOPIC_ERRORS_UNTIL:
        response: ResponseValue = messages.AddPartitionsToTxnResponse(error_code=error, results_by_transaction=[])
        return response
    partition_of = messages.AddPartitionsToTxnPartitionResult
    results = [
        messages.AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                partition_of(partition_index=index, partition_error_code=error) for index in topic.partitions
            ],
        )
        for topic in request.v3_and_below_topics
    ]
    made: ResponseValue = messages.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)
    return made


def _write_txn_markers(messages: ModuleType, request: Any, _version: int, error: ErrorCode) -> ResponseValue:
    partition_of = messages.WritableTxnMarkerPartitionResult
    response: ResponseValue = messages.WriteTxnMarkersResponse(
        markers=[
            messages.WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    messages.WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            partition_of(partition_index=index, error_code=error) for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )
    return response


def _create_acls(messages: ModuleType, request: Any, _version: int, error: ErrorCode) -> ResponseValue:
    results = [messages.AclCreationResult(error_code=error, error_message=_MESSAGES[error]) for _ in request.creations]
    response: ResponseValue = messages.CreateAclsResponse(results=results)
    return response


def _delete_acls(messages: ModuleType, request: Any, _version: int, error: ErrorCode) -> ResponseValue:
    results = [
        messages.DeleteAclsFilterResult(error_code=error, error_message=_MESSAGES[error], matching_acls=[])
        for _ in request.filters
    ]
    response: ResponseValue = messages.DeleteAclsResponse(filter_results=results)
    return response


def _alter_replica_log_dirs(messages: ModuleType, request: Any, _version: int, error: ErrorCode) -> ResponseValue:
    partition_of = messages.AlterReplicaLogDirPartitionResult
    results = [
        messages.AlterReplicaLogDirTopicResult(
            topic_name=topic.name,
            partitions=[partition_of(partition_index=index, error_code=error) for index in topic.partitions],
        )
        for directory in request.dirs
        for topic in directory.topics
    ]
    response: ResponseValue = messages.AlterReplicaLogDirsResponse(results=results)
    return response


def _elect_leaders(messages: ModuleType, request: Any, _version: int, error: ErrorCode) -> ResponseValue:
    text = _MESSAGES[error]
    results = [
        messages.ReplicaElectionResult(
            topic=topic.topic,
            partition_result=[
                messages.PartitionResult(partition_id=index, error_code=error, error_message=text)
                for index in topic.partitions
            ],
        )
        for topic in request.topic_partitions or ()
    ]
    response: ResponseValue = messages.ElectLeadersResponse(error_code=error, replica_election_results=results)
    return response


def _alter_reassignments(messages: ModuleType, request: Any, _version: int, error: ErrorCode) -> ResponseValue:
    text, partition_of = _MESSAGES[error], messages.ReassignablePartitionResponse
    topics = [
        messages.ReassignableTopicResponse(
            name=topic.name,
            partitions=[
                partition_of(partition_index=part.partition_index, error_code=error, error_message=text)
                for part in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    response: ResponseValue = messages.AlterPartitionReassignmentsResponse(
        error_code=error, error_message=text, responses=topics
    )
    return response


def _list_reassignments(messages: ModuleType, request: Any, _version: int, error: ErrorCode) -> ResponseValue:
    partition_of = messages.OngoingPartitionReassignment
    topics = [
        messages.OngoingTopicReassignment(
            name=topic.name, partitions=[partition_of(partition_index=index) for index in topic.partition_indexes]
        )
        for topic in request.topics or ()
    ]
    response: ResponseValue = messages.ListPartitionReassignmentsResponse(
        error_code=error, error_message=_MESSAGES[error], topics=topics
    )
    return response


def _describe_client_quotas(messages: ModuleType, _request: Any, _version: int, error: ErrorCode) -> ResponseValue:
    response: ResponseValue = messages.DescribeClientQuotasResponse(
        error_code=error, error_message=_MESSAGES[error], entries=None
    )
    return response


def _alter_client_quotas(messages: ModuleType, request: Any, _version: int, error: ErrorCode) -> ResponseValue:
    entries = [
        messages.EntryDataResponse(
            error_code=error,
            error_message=_MESSAGES[error],
            entity=[
                messages.EntityData(entity_type=entity.entity_type, entity_name=entity.entity_name)
                for entity in entry.entity
            ],
        )
        for entry in request.entries
    ]
    response: ResponseValue = messages.AlterClientQuotasResponse(entries=entries)
    return response


def _describe_scram(messages: ModuleType, request: Any, _version: int, error: ErrorCode) -> ResponseValue:
    text = _MESSAGES[error]
    results = [
        messages.DescribeUserScramCredentialsResult(error_code=error, error_message=text) for _ in request.users or ()
    ]
    response: ResponseValue = messages.DescribeUserScramCredentialsResponse(
        error_code=error, error_message=text, results=results
    )
    return response


def _alter_scram(messages: ModuleType, request: Any, _version: int, error: ErrorCode) -> ResponseValue:
    users = dict.fromkeys(one.name for one in (*request.deletions, *request.upsertions))
    results = [
        messages.AlterUserScramCredentialsResult(user=user, error_code=error, error_message=_MESSAGES[error])
        for user in users
    ]
    response: ResponseValue = messages.AlterUserScramCredentialsResponse(results=results)
    return response


_SHARE_STATES = {
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: "InitializeStateResult",
    ApiKey.READ_SHARE_GROUP_STATE: "ReadStateResult",
    ApiKey.WRITE_SHARE_GROUP_STATE: "WriteStateResult",
    ApiKey.DELETE_SHARE_GROUP_STATE: "DeleteStateResult",
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: "ReadStateSummaryResult",
}


def _share_state(messages: ModuleType, request: Any, _version: int, error: ErrorCode) -> ResponseValue:
    partition_of, text = messages.PartitionResult, _MESSAGES[error]
    results = [
        getattr(messages, _SHARE_STATES[request.api_key])(
            topic_id=topic.topic_id,
            partitions=[
                partition_of(partition=part.partition, error_code=error, error_message=text)
                for part in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    made: Any = API_BY_KEY[request.api_key].response
    response: ResponseValue = made(results=results)
    return response


_SPECIAL: dict[int, _Refuse] = {
    ApiKey.OFFSET_COMMIT: _offset_commit,
    ApiKey.JOIN_GROUP: _join_group,
    ApiKey.INIT_PRODUCER_ID: _init_producer_id,
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions,
    ApiKey.WRITE_TXN_MARKERS: _write_txn_markers,
    ApiKey.TXN_OFFSET_COMMIT: _txn_offset_commit,
    ApiKey.CREATE_ACLS: _create_acls,
    ApiKey.DELETE_ACLS: _delete_acls,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _alter_replica_log_dirs,
    ApiKey.ELECT_LEADERS: _elect_leaders,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _alter_reassignments,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _list_reassignments,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _describe_client_quotas,
    ApiKey.ALTER_CLIENT_QUOTAS: _alter_client_quotas,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _describe_scram,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _alter_scram,
    **dict.fromkeys(_SHARE_STATES, _share_state),
}
