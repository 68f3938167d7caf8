"""DeleteRecords (21): move the start of partitions forward."""

from fencepost.protocol.schema import Array, Int16, Int32, Int64, Request, Response, String, Struct

VERSIONS = (0, 2)
FLEXIBLE = 2

DeleteRecordsPartition = Struct(
    "DeleteRecordsPartition",
    "partition_index" / Int32,
    "offset" / Int64,
)

DeleteRecordsTopic = Struct(
    "DeleteRecordsTopic",
    "name" / String,
    "partitions" / Array(DeleteRecordsPartition),
)

DeleteRecordsRequest = Request(
    21,
    "DeleteRecordsRequest",
    VERSIONS,
    FLEXIBLE,
    "topics" / Array(DeleteRecordsTopic),
    "timeout_ms" / Int32,
)

DeleteRecordsPartitionResult = Struct(
    "DeleteRecordsPartitionResult",
    "partition_index" / Int32,
    "low_watermark" / Int64,
    "error_code" / Int16,
)

DeleteRecordsTopicResult = Struct(
    "DeleteRecordsTopicResult",
    "name" / String,
    "partitions" / Array(DeleteRecordsPartitionResult),
)

DeleteRecordsResponse = Response(
    21,
    "DeleteRecordsResponse",
    VERSIONS,
    FLEXIBLE,
    "throttle_time_ms" / Int32,
    "topics" / Array(DeleteRecordsTopicResult),
)
