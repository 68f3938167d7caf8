"""DescribeShareGroupOffsets (90): the start offsets of share groups (KIP-932).

v1 brings the lag (KIP-1226). Tags 1000 and 1001 of the request, and 1000 of each partition, are fencepost's
(docs/decisions/0016-tagged-fields.md); Kafka skips them.
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import (
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    RequestValue,
    ResponseValue,
    String,
    Uuid,
    Value,
    field,
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
    explain: Bool = field(tag=1000)
    of_leader: Bool = field(tag=1001)


class StateRange(Value):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    state: Int8 = 0
    delivery_count: Int16 = 0
    member_id: String = ""
    lock_ms: Int64 = -1
    producer_id: Int64 = -1


class RecordStates(Value):
    start_offset: Int64 = 0
    next_offset: Int64 = 0
    complete: Bool = False
    ranges: list[StateRange] = []


class DescribedPartition(Value):
    partition_index: Int32 = 0
    start_offset: Int64 = 0
    leader_epoch: Int32 = 0
    lag: Int64 = since(1, default=-1)
    error_code: Int16 = 0
    error_message: String | None = None
    states: RecordStates | None = field(tag=1000)


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
