"""DeleteRecords (21): move the start of partitions forward."""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Array, Int16, Int32, Int64, Request, Response, String, Struct

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
    ApiKey.DELETE_RECORDS,
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
    ApiKey.DELETE_RECORDS,
    "throttle_time_ms" / Int32,
    "topics" / Array(DeleteRecordsTopicResult),
)
