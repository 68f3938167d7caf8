"""AlterReplicaLogDirs (34): move replicas between the directories of a broker (KIP-113)."""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Array, Int16, Int32, Request, Response, String, Struct

AlterReplicaLogDirTopic = Struct(
    "AlterReplicaLogDirTopic",
    "name" / String,
    "partitions" / Array(Int32),
)

AlterReplicaLogDir = Struct(
    "AlterReplicaLogDir",
    "path" / String,
    "topics" / Array(AlterReplicaLogDirTopic),
)

AlterReplicaLogDirsRequest = Request(
    ApiKey.ALTER_REPLICA_LOG_DIRS,
    "dirs" / Array(AlterReplicaLogDir),
)

AlterReplicaLogDirPartitionResult = Struct(
    "AlterReplicaLogDirPartitionResult",
    "partition_index" / Int32,
    "error_code" / Int16,
)

AlterReplicaLogDirTopicResult = Struct(
    "AlterReplicaLogDirTopicResult",
    "topic_name" / String,
    "partitions" / Array(AlterReplicaLogDirPartitionResult),
)

AlterReplicaLogDirsResponse = Response(
    ApiKey.ALTER_REPLICA_LOG_DIRS,
    "throttle_time_ms" / Int32,
    "results" / Array(AlterReplicaLogDirTopicResult),
)
