"""ConsumerGroupDescribe (69): KIP-848 groups with their epochs, members, current and target assignments.

v1 has the protocol of each member (KIP-1099).
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import (
    Array,
    Bool,
    Field,
    Int8,
    Int16,
    Int32,
    Request,
    Response,
    Since,
    String,
    Struct,
    Uuid,
)

ConsumerGroupDescribeRequest = Request(
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    "group_ids" / Array(String),
    "include_authorized_operations" / Bool,
)

TopicPartitions = Struct(
    "TopicPartitions",
    "topic_id" / Uuid,
    "topic_name" / String,
    "partitions" / Array(Int32),
)

Assignment = Struct(
    "Assignment",
    "topic_partitions" / Array(TopicPartitions),
)

Member = Struct(
    "Member",
    "member_id" / String,
    "instance_id" / Field(String, default=None, nullable=0),
    "rack_id" / Field(String, default=None, nullable=0),
    "member_epoch" / Int32,
    "client_id" / String,
    "client_host" / String,
    "subscribed_topic_names" / Array(String),
    "subscribed_topic_regex" / Field(String, default=None, nullable=0),
    "assignment" / Assignment,
    "target_assignment" / Assignment,
    "member_type" / Since(1, Int8, default=-1),
)

DescribedGroup = Struct(
    "DescribedGroup",
    "error_code" / Int16,
    "error_message" / Field(String, default=None, nullable=0),
    "group_id" / String,
    "group_state" / String,
    "group_epoch" / Int32,
    "assignment_epoch" / Int32,
    "assignor_name" / String,
    "members" / Array(Member),
    "authorized_operations" / Field(Int32, default=-2147483648),
)

ConsumerGroupDescribeResponse = Response(
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    "throttle_time_ms" / Int32,
    "groups" / Array(DescribedGroup),
)
