"""DescribeShareGroupOffsets (90): the start offsets of share groups (KIP-932).

v1 brings the lag (KIP-1226).
"""

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
    since,
)


class AskedTopic(Value):
    topic_name: String = ""
    partitions: list[Int32] = []


class AskedGroup(Value):
    group_id: String = ""
    topics: list[AskedTopic] | None = []


class DescribeShareGroupOffsetsRequest(
    RequestValue["DescribeShareGroupOffsetsResponse"], api=ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS
):
    groups: list[AskedGroup] = []


class DescribedPartition(Value):
    partition_index: Int32 = 0
    start_offset: Int64 = 0
    leader_epoch: Int32 = 0
    lag: Int64 = since(1, default=-1)
    error_code: Int16 = 0
    error_message: String | None = None


class DescribedTopic(Value):
    topic_name: String = ""
    topic_id: Uuid = bytes(16)
    partitions: list[DescribedPartition] = []


class DescribedGroup(Value):
    group_id: String = ""
    topics: list[DescribedTopic] = []
    error_code: Int16 = 0
    error_message: String | None = None


class DescribeShareGroupOffsetsResponse(ResponseValue, api=ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS):
    throttle_time_ms: Int32 = 0
    groups: list[DescribedGroup] = []
