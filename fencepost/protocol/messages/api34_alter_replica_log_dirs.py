"""AlterReplicaLogDirs (34): move replicas between the directories of a broker (KIP-113)."""

from fencepost.protocol.schema import Array, Int16, Int32, Request, Response, String, Struct

VERSIONS = (1, 2)
FLEXIBLE = 2

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
    34,
    "AlterReplicaLogDirsRequest",
    VERSIONS,
    FLEXIBLE,
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
    34,
    "AlterReplicaLogDirsResponse",
    VERSIONS,
    FLEXIBLE,
    "throttle_time_ms" / Int32,
    "results" / Array(AlterReplicaLogDirTopicResult),
)
