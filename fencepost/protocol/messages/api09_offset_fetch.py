"""OffsetFetch (9): read a group's committed offsets.

v2 may ask for all topics, v7 brings requireStable (KIP-447), v8 many groups at once (KIP-709), v9 member epochs
(KIP-848), v10 topic ids.
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import (
    Bool,
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


class OffsetFetchRequestTopic(Value):
    name: String = until(7)
    partition_indexes: list[Int32] = until(7)


class OffsetFetchRequestTopics(Value):
    name: String = since(8, until=9)
    topic_id: Uuid = since(10)
    partition_indexes: list[Int32] = since(8)


class OffsetFetchRequestGroup(Value):
    group_id: String = since(8)
    member_id: String | None = since(9, default=None)
    member_epoch: Int32 = since(9, default=-1)
    topics: list[OffsetFetchRequestTopics] | None = since(8, default=[])


class OffsetFetchRequest(RequestValue["OffsetFetchResponse"], api=ApiKey.OFFSET_FETCH):
    group_id: String = until(7)
    topics: list[OffsetFetchRequestTopic] | None = until(7, default=[], nullable=2)
    groups: list[OffsetFetchRequestGroup] = since(8)
    require_stable: Bool = since(7)


class OffsetFetchResponsePartition(Value):
    partition_index: Int32 = until(7)
    committed_offset: Int64 = until(7)
    committed_leader_epoch: Int32 = since(5, until=7, default=-1)
    metadata: String | None = until(7, default="")
    error_code: Int16 = until(7)


class OffsetFetchResponseTopic(Value):
    name: String = until(7)
    partitions: list[OffsetFetchResponsePartition] = until(7)


class OffsetFetchResponsePartitions(Value):
    partition_index: Int32 = since(8)
    committed_offset: Int64 = since(8)
    committed_leader_epoch: Int32 = since(8, default=-1)
    metadata: String | None = since(8, default="")
    error_code: Int16 = since(8)


class OffsetFetchResponseTopics(Value):
    name: String = since(8, until=9)
    topic_id: Uuid = since(10)
    partitions: list[OffsetFetchResponsePartitions] = since(8)


class OffsetFetchResponseGroup(Value):
    group_id: String = since(8)
    topics: list[OffsetFetchResponseTopics] = since(8)
    error_code: Int16 = since(8)


class OffsetFetchResponse(ResponseValue, api=ApiKey.OFFSET_FETCH):
    throttle_time_ms: Int32 = since(3)
    topics: list[OffsetFetchResponseTopic] = until(7)
    error_code: Int16 = since(2, until=7)
    groups: list[OffsetFetchResponseGroup] = since(8)
