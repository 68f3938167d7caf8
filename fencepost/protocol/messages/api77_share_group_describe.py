"""ShareGroupDescribe (77): share groups with their epochs, members and assignments (KIP-932)."""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import (
    Bool,
    Int16,
    Int32,
    RequestValue,
    ResponseValue,
    String,
    Uuid,
    Value,
    field,
)


class ShareGroupDescribeRequest(RequestValue["ShareGroupDescribeResponse"], api=ApiKey.SHARE_GROUP_DESCRIBE):
    group_ids: list[String] = []
    include_authorized_operations: Bool = False


class TopicPartitions(Value):
    topic_id: Uuid = bytes(16)
    topic_name: String = ""
    partitions: list[Int32] = []


class Assignment(Value):
    topic_partitions: list[TopicPartitions] = []


class Member(Value):
    member_id: String = ""
    rack_id: String | None = None
    member_epoch: Int32 = 0
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: list[String] = []
    assignment: Assignment = field()


class DescribedGroup(Value):
    error_code: Int16 = 0
    error_message: String | None = None
    group_id: String = ""
    group_state: String = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    assignor_name: String = ""
    members: list[Member] = []
    authorized_operations: Int32 = -2147483648


class ShareGroupDescribeResponse(ResponseValue, api=ApiKey.SHARE_GROUP_DESCRIBE):
    throttle_time_ms: Int32 = 0
    groups: list[DescribedGroup] = []
