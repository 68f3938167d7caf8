"""ListOffsets (2): offsets by time or by name (earliest, latest, the last stable offset).

v0 answers a list of offsets and is used only by old librdkafka; v2 brings the isolation level, v4 leader epochs,
v7 the maximum timestamp (KIP-734), v8 and v9 the local and tiered ends, v10 a timeout, v11 the earliest pending upload.
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import (
    Int8,
    Int16,
    Int32,
    Int64,
    RequestValue,
    ResponseValue,
    String,
    Value,
    since,
    until,
)


class ListOffsetsPartition(Value):
    partition_index: Int32 = 0
    current_leader_epoch: Int32 = since(4, default=-1)
    timestamp: Int64 = 0
    max_num_offsets: Int32 = until(0, default=1)


class ListOffsetsTopic(Value):
    name: String = ""
    partitions: list[ListOffsetsPartition] = []


class ListOffsetsRequest(RequestValue["ListOffsetsResponse"], api=ApiKey.LIST_OFFSETS):
    replica_id: Int32 = 0
    isolation_level: Int8 = since(2)
    topics: list[ListOffsetsTopic] = []
    timeout_ms: Int32 = since(10)


class ListOffsetsPartitionResponse(Value):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    old_style_offsets: list[Int64] = until(0)
    timestamp: Int64 = since(1, default=-1)
    offset: Int64 = since(1, default=-1)
    leader_epoch: Int32 = since(4, default=-1)


class ListOffsetsTopicResponse(Value):
    name: String = ""
    partitions: list[ListOffsetsPartitionResponse] = []


class ListOffsetsResponse(ResponseValue, api=ApiKey.LIST_OFFSETS):
    throttle_time_ms: Int32 = since(2)
    topics: list[ListOffsetsTopicResponse] = []
