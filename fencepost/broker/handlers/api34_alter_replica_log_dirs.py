"""AlterReplicaLogDirs (34): move a replica between directories (KIP-113). Both versions mean the same.

This broker keeps all logs in one directory (`log.dirs`), so every replica is in the only valid directory already.
"""

from fencepost.broker.log.storage.layout import absolute
from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import Broker
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api34_alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from fencepost.protocol.topics import TopicPartition


def handle(node: Broker, request: AlterReplicaLogDirsRequest, _context: RequestContext) -> AlterReplicaLogDirsResponse:
    """Return for each replica NONE, or why it cannot move to the path. Results are grouped by topic, not by path."""
    answers: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            answers.setdefault(topic.name, []).extend(
                AlterReplicaLogDirPartitionResult(
                    partition_index=number,
                    error_code=_outcome(node, directory.path, TopicPartition(topic.name, number)),
                )
                for number in topic.partitions
            )
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(topic_name=name, partitions=partitions)
            for name, partitions in answers.items()
        ]
    )


def _outcome(node: Broker, path: str, tp: TopicPartition) -> ErrorCode:
    if path != absolute(node.logs.place):
        return ErrorCode.LOG_DIR_NOT_FOUND
    if not node.metadata.exists(tp):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if node.is_offline(tp):
        return ErrorCode.KAFKA_STORAGE_ERROR
    return ErrorCode.NONE if node.partitions.leads(tp) else ErrorCode.NOT_LEADER_OR_FOLLOWER
