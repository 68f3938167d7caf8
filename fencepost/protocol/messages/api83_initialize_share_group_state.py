"""InitializeShareGroupState (83): a group coordinator sets the start offset of a share partition (KIP-932)."""

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


class PartitionData(Value):
    partition: Int32 = 0
    state_epoch: Int32 = 0
    start_offset: Int64 = 0


class InitializeStateData(Value):
    topic_id: Uuid = bytes(16)
    partitions: list[PartitionData] = []


class InitializeShareGroupStateRequest(
    RequestValue["InitializeShareGroupStateResponse"], api=ApiKey.INITIALIZE_SHARE_GROUP_STATE
):
    group_id: String = ""
    topics: list[InitializeStateData] = []


class PartitionResult(Value):
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None


class InitializeStateResult(Value):
    topic_id: Uuid = bytes(16)
    partitions: list[PartitionResult] = []


class InitializeShareGroupStateResponse(ResponseValue, api=ApiKey.INITIALIZE_SHARE_GROUP_STATE):
    results: list[InitializeStateResult] = []
