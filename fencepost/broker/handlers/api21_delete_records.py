"""DeleteRecords (21): move the log start offset of partitions forward, up to the high watermark (-1 means all).

v0-2 are served; they differ in encoding only. If a topic's cleanup.policy lacks `delete`, the code is POLICY_VIOLATION.
"""

from fencepost.broker.log.durability.upkeep import in_threads
from fencepost.broker.log.trimming import deleting_records
from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import Broker
from fencepost.broker.security.checks import denied_topics
from fencepost.coordinator.metadata.topic_names import is_internal
from fencepost.protocol.admin_enums import AclOperation
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api21_delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from fencepost.protocol.topics import TopicPartition

UNKNOWN_LOW_WATERMARK = -1


async def handle(node: Broker, request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
    refused = denied_topics(node, context, AclOperation.DELETE, (topic.name for topic in request.topics))
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    _refused(part.partition_index)
                    if topic.name in refused
                    else await _delete(node, TopicPartition(topic.name, part.partition_index), part.offset)
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _refused(number: int) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=number, low_watermark=UNKNOWN_LOW_WATERMARK, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
    )


async def _delete(node: Broker, tp: TopicPartition, offset: int) -> DeleteRecordsPartitionResult:
    log = node.partition(tp)
    if is_internal(tp.topic):
        code, start = ErrorCode.INVALID_TOPIC_EXCEPTION, UNKNOWN_LOW_WATERMARK
    elif log is None:
        code, start = node.absence(tp), UNKNOWN_LOW_WATERMARK
    elif not log.config.deletes:
        code, start = ErrorCode.POLICY_VIOLATION, UNKNOWN_LOW_WATERMARK
    else:
        await node.flusher.flush_all([log])
        if log.disowned:  # the topic was deleted during the flush
            code, start = node.absence(tp), UNKNOWN_LOW_WATERMARK
        else:
            code, start = await in_threads(deleting_records(log, offset), node.upkeep_threads)
    low_watermark = start if code is ErrorCode.NONE else UNKNOWN_LOW_WATERMARK
    return DeleteRecordsPartitionResult(partition_index=tp.partition, low_watermark=low_watermark, error_code=code)
