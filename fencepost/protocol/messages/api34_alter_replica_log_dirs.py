"""AlterReplicaLogDirs (34): move replicas between the directories of a broker (KIP-113)."""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Int16, Int32, RequestValue, ResponseValue, String, Value


class AlterReplicaLogDirTopic(Value):
    name: String = ""
    partitions: list[Int32] = []


class AlterReplicaLogDir(Value):
    path: String = ""
    topics: list[AlterReplicaLogDirTopic] = []


class AlterReplicaLogDirsRequest(RequestValue["AlterReplicaLogDirsResponse"], api=ApiKey.ALTER_REPLICA_LOG_DIRS):
    dirs: list[AlterReplicaLogDir] = []


class AlterReplicaLogDirPartitionResult(Value):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class AlterReplicaLogDirTopicResult(Value):
    topic_name: String = ""
    partitions: list[AlterReplicaLogDirPartitionResult] = []


class AlterReplicaLogDirsResponse(ResponseValue, api=ApiKey.ALTER_REPLICA_LOG_DIRS):
    throttle_time_ms: Int32 = 0
    results: list[AlterReplicaLogDirTopicResult] = []
