"""OffsetDelete (47): delete some of a group's offsets (KIP-496)."""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Int16, Int32, RequestValue, ResponseValue, String, Value


class OffsetDeleteRequestPartition(Value):
    partition_index: Int32 = 0


class OffsetDeleteRequestTopic(Value):
    name: String = ""
    partitions: list[OffsetDeleteRequestPartition] = []


class OffsetDeleteRequest(RequestValue["OffsetDeleteResponse"], api=ApiKey.OFFSET_DELETE):
    group_id: String = ""
    topics: list[OffsetDeleteRequestTopic] = []


class OffsetDeleteResponsePartition(Value):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetDeleteResponseTopic(Value):
    name: String = ""
    partitions: list[OffsetDeleteResponsePartition] = []


class OffsetDeleteResponse(ResponseValue, api=ApiKey.OFFSET_DELETE):
    error_code: Int16 = 0
    throttle_time_ms: Int32 = 0
    topics: list[OffsetDeleteResponseTopic] = []
