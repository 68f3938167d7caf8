"""ShareGroupHeartbeat (76): a member of a share group joins, keeps alive, gets its partitions, and leaves (KIP-932)."""

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


class ShareGroupHeartbeatRequest(RequestValue["ShareGroupHeartbeatResponse"], api=ApiKey.SHARE_GROUP_HEARTBEAT):
    group_id: String = ""
    member_id: String = ""
    member_epoch: Int32 = 0
    rack_id: String | None = None
    subscribed_topic_names: list[String] | None = None


class TopicPartitions(Value):
    topic_id: Uuid = bytes(16)
    partitions: list[Int32] = []


class Assignment(Value):
    topic_partitions: list[TopicPartitions] = []


class ShareGroupHeartbeatResponse(ResponseValue, api=ApiKey.SHARE_GROUP_HEARTBEAT):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    member_id: String | None = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: Assignment | None = None
