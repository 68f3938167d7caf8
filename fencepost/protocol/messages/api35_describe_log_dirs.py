"""DescribeLogDirs (35): the directories of a broker and the sizes of their replicas (KIP-113).

v3 brings an error for the whole answer, v4 sizes of the volumes (KIP-827), v5 cordoned directories (KIP-1066).
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Array, Bool, Field, Int16, Int32, Int64, Request, Response, Since, String, Struct

DescribableLogDirTopic = Struct(
    "DescribableLogDirTopic",
    "topic" / String,
    "partitions" / Array(Int32),
)

DescribeLogDirsRequest = Request(
    ApiKey.DESCRIBE_LOG_DIRS,
    "topics" / Field(Array(DescribableLogDirTopic), nullable=0),
)

DescribeLogDirsPartition = Struct(
    "DescribeLogDirsPartition",
    "partition_index" / Int32,
    "partition_size" / Int64,
    "offset_lag" / Int64,
    "is_future_key" / Bool,
)

DescribeLogDirsTopic = Struct(
    "DescribeLogDirsTopic",
    "name" / String,
    "partitions" / Array(DescribeLogDirsPartition),
)

DescribeLogDirsResult = Struct(
    "DescribeLogDirsResult",
    "error_code" / Int16,
    "log_dir" / String,
    "topics" / Array(DescribeLogDirsTopic),
    "total_bytes" / Since(4, Int64, default=-1),
    "usable_bytes" / Since(4, Int64, default=-1),
    "is_cordoned" / Since(5, Bool),
)

DescribeLogDirsResponse = Response(
    ApiKey.DESCRIBE_LOG_DIRS,
    "throttle_time_ms" / Int32,
    "error_code" / Since(3, Int16),
    "results" / Array(DescribeLogDirsResult),
)
