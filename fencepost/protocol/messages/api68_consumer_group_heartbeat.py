"""ConsumerGroupHeartbeat (68): a member of a KIP-848 group joins, keeps alive, receives its partitions, and leaves.

v1 brings subscriptions by regular expression, and member ids that the client chooses (KIP-1082).
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Array, Field, Int16, Int32, Request, Response, Since, String, Struct, Uuid

TopicPartitions = Struct(
    "TopicPartitions",
    "topic_id" / Uuid,
    "partitions" / Array(Int32),
)

ConsumerGroupHeartbeatRequest = Request(
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    "group_id" / String,
    "member_id" / String,
    "member_epoch" / Int32,
    "instance_id" / Field(String, default=None, nullable=0),
    "rack_id" / Field(String, default=None, nullable=0),
    "rebalance_timeout_ms" / Field(Int32, default=-1),
    "subscribed_topic_names" / Field(Array(String), default=None, nullable=0),
    "subscribed_topic_regex" / Since(1, String, default=None, nullable=1),
    "server_assignor" / Field(String, default=None, nullable=0),
    "topic_partitions" / Field(Array(TopicPartitions), default=None, nullable=0),
)

Assignment = Struct(
    "Assignment",
    "topic_partitions" / Array(TopicPartitions),
)

ConsumerGroupHeartbeatResponse = Response(
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    "throttle_time_ms" / Int32,
    "error_code" / Int16,
    "error_message" / Field(String, default=None, nullable=0),
    "member_id" / Field(String, default=None, nullable=0),
    "member_epoch" / Int32,
    "heartbeat_interval_ms" / Int32,
    "assignment" / Field(Assignment, default=None, nullable=0),
)
