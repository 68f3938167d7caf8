"""DeleteShareGroupState (86): a group coordinator deletes the state of share partitions (KIP-932)."""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import (
    Int16,
    Int32,
    RequestValue,
    ResponseValue,
    String,
    Uuid,
    Value,
)


class PartitionData(Value):
    partition: Int32 = 0


class DeleteStateData(Value):
    topic_id: Uuid = bytes(16)
    partitions: list[PartitionData] = []


class DeleteShareGroupStateRequest(RequestValue["DeleteShareGroupStateResponse"], api=ApiKey.DELETE_SHARE_GROUP_STATE):
    group_id: String = ""
    topics: list[DeleteStateData] = []


class PartitionResult(Value):
    partition: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None


class DeleteStateResult(Value):
    topic_id: Uuid = bytes(16)
    partitions: list[PartitionResult] = []


class DeleteShareGroupStateResponse(ResponseValue, api=ApiKey.DELETE_SHARE_GROUP_STATE):
    results: list[DeleteStateResult] = []
