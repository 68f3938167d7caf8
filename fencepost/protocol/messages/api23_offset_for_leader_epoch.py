"""OffsetForLeaderEpoch (23): where the log of a leader epoch ends (KIP-101, KIP-320)."""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Int16, Int32, Int64, RequestValue, ResponseValue, String, Value, since


class OffsetForLeaderPartition(Value):
    partition: Int32 = 0
    current_leader_epoch: Int32 = since(2, default=-1)
    leader_epoch: Int32 = 0


class OffsetForLeaderTopic(Value):
    topic: String = ""
    partitions: list[OffsetForLeaderPartition] = []


class OffsetForLeaderEpochRequest(RequestValue["OffsetForLeaderEpochResponse"], api=ApiKey.OFFSET_FOR_LEADER_EPOCH):
    replica_id: Int32 = since(3, default=-2)
    topics: list[OffsetForLeaderTopic] = []


class EpochEndOffset(Value):
    error_code: Int16 = 0
    partition: Int32 = 0
    leader_epoch: Int32 = since(1, default=-1)
    end_offset: Int64 = -1


class OffsetForLeaderTopicResult(Value):
    topic: String = ""
    partitions: list[EpochEndOffset] = []


class OffsetForLeaderEpochResponse(ResponseValue, api=ApiKey.OFFSET_FOR_LEADER_EPOCH):
    throttle_time_ms: Int32 = since(2)
    topics: list[OffsetForLeaderTopicResult] = []
