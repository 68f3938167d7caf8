"""OffsetCommit (8): store a group's offsets.

v0 and v1 are used only by librdkafka 1.0 to 1.2; v2-4 have a retention time, v7 the instance id (KIP-345),
v9 member epochs (KIP-848), v10 topic ids.
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
    until,
)


class OffsetCommitRequestPartition(Value):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Int32 = since(6, default=-1)
    commit_timestamp: Int64 = since(1, until=1, default=-1)
    committed_metadata: String | None = ""


class OffsetCommitRequestTopic(Value):
    name: String = until(9)
    topic_id: Uuid = since(10)
    partitions: list[OffsetCommitRequestPartition] = []


class OffsetCommitRequest(RequestValue["OffsetCommitResponse"], api=ApiKey.OFFSET_COMMIT):
    group_id: String = ""
    generation_id_or_member_epoch: Int32 = since(1, default=-1)
    member_id: String = since(1)
    group_instance_id: String | None = since(7, default=None)
    retention_time_ms: Int64 = since(2, until=4, default=-1)
    topics: list[OffsetCommitRequestTopic] = []


class OffsetCommitResponsePartition(Value):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetCommitResponseTopic(Value):
    name: String = until(9)
    topic_id: Uuid = since(10)
    partitions: list[OffsetCommitResponsePartition] = []


class OffsetCommitResponse(ResponseValue, api=ApiKey.OFFSET_COMMIT):
    throttle_time_ms: Int32 = since(3)
    topics: list[OffsetCommitResponseTopic] = []
