"""ReadShareGroupState (84): the leader of a partition reads the state of its share partition (KIP-932).

Tag 1000 is fencepost's (docs/decisions/0016-tagged-fields.md).
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
)


class PartitionData(Value):
    partition: Int32 = 0
    leader_epoch: Int32 = 0


class ReadStateData(Value):
    topic_id: Uuid = bytes(16)
    partitions: list[PartitionData] = []


class ReadShareGroupStateRequest(RequestValue["ReadShareGroupStateResponse"], api=ApiKey.READ_SHARE_GROUP_STATE):
    group_id: String = ""
    topics: list[ReadStateData] = []


class StateBatch(Value):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_state: Int8 = 0
    delivery_count: Int16 = 0
    held_until_ms: Int64 = field(default=-1, tag=1000)


class PendingBatch(Value):
    producer_id: Int64 = 0
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_state: Int8 = 0
    delivery_count: Int16 = 0


class PartitionResult(Value):
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    state_epoch: Int32 = 0
    start_offset: Int64 = 0
    state_batches: list[StateBatch] = []
    pending: list[PendingBatch] = field(tag=1000)


class ReadStateResult(Value):
    topic_id: Uuid = bytes(16)
    partitions: list[PartitionResult] = []


class ReadShareGroupStateResponse(ResponseValue, api=ApiKey.READ_SHARE_GROUP_STATE):
    results: list[ReadStateResult] = []
