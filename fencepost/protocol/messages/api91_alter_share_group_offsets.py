"""AlterShareGroupOffsets (91): set the start offsets of an empty share group (KIP-932)."""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import (
    Int16,
    Int32,
    Int64,
    RequestValue,
    ResponseValue,
    String,
    Uuid,
    Value,
)


class AlteredPartition(Value):
    partition_index: Int32 = 0
    start_offset: Int64 = 0


class AlteredTopic(Value):
    topic_name: String = ""
    partitions: list[AlteredPartition] = []


class AlterShareGroupOffsetsRequest(
    RequestValue["AlterShareGroupOffsetsResponse"], api=ApiKey.ALTER_SHARE_GROUP_OFFSETS
):
    group_id: String = ""
    topics: list[AlteredTopic] = []


class PartitionResult(Value):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None


class TopicResult(Value):
    topic_name: String = ""
    topic_id: Uuid = bytes(16)
    partitions: list[PartitionResult] = []


class AlterShareGroupOffsetsResponse(ResponseValue, api=ApiKey.ALTER_SHARE_GROUP_OFFSETS):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    responses: list[TopicResult] = []
