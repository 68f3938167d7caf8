"""DeleteRecords (21): move the start of partitions forward."""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Int16, Int32, Int64, RequestValue, ResponseValue, String, Value


class DeleteRecordsPartition(Value):
    partition_index: Int32 = 0
    offset: Int64 = 0


class DeleteRecordsTopic(Value):
    name: String = ""
    partitions: list[DeleteRecordsPartition] = []


class DeleteRecordsRequest(RequestValue["DeleteRecordsResponse"], api=ApiKey.DELETE_RECORDS):
    topics: list[DeleteRecordsTopic] = []
    timeout_ms: Int32 = 0


class DeleteRecordsPartitionResult(Value):
    partition_index: Int32 = 0
    low_watermark: Int64 = 0
    error_code: Int16 = 0


class DeleteRecordsTopicResult(Value):
    name: String = ""
    partitions: list[DeleteRecordsPartitionResult] = []


class DeleteRecordsResponse(ResponseValue, api=ApiKey.DELETE_RECORDS):
    throttle_time_ms: Int32 = 0
    topics: list[DeleteRecordsTopicResult] = []
