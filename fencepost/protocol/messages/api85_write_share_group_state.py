"""WriteShareGroupState (85): the leader of a partition stores what changed in its share partition (KIP-932).

v1 brings the number of records delivered, from which the lag follows (KIP-1226).
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
    Uuid,
    Value,
    field,
    since,
)


class StateBatch(Value):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_state: Int8 = 0
    delivery_count: Int16 = 0
    held_until_ms: Int64 = field(default=-1, tag=1000)


class PartitionData(Value):
    partition: Int32 = 0
    state_epoch: Int32 = 0
    leader_epoch: Int32 = 0
    start_offset: Int64 = 0
    delivery_complete_count: Int32 = since(1, default=-1)
    state_batches: list[StateBatch] = []


class WriteStateData(Value):
    topic_id: Uuid = bytes(16)
    partitions: list[PartitionData] = []


class WriteShareGroupStateRequest(RequestValue["WriteShareGroupStateResponse"], api=ApiKey.WRITE_SHARE_GROUP_STATE):
    group_id: String = ""
    topics: list[WriteStateData] = []


class PartitionResult(Value):
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None


class WriteStateResult(Value):
    topic_id: Uuid = bytes(16)
    partitions: list[PartitionResult] = []


class WriteShareGroupStateResponse(ResponseValue, api=ApiKey.WRITE_SHARE_GROUP_STATE):
    results: list[WriteStateResult] = []
