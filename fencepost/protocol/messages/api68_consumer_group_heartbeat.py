"""ConsumerGroupHeartbeat (68): a member of a KIP-848 group joins, keeps alive, receives its partitions, and leaves.

v1 brings subscriptions by regular expression, and member ids that the client chooses (KIP-1082).
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Int16, Int32, RequestValue, ResponseValue, String, Uuid, Value, since


class TopicPartitions(Value):
    topic_id: Uuid = bytes(16)
    partitions: list[Int32] = []


class ConsumerGroupHeartbeatRequest(
    RequestValue["ConsumerGroupHeartbeatResponse"], api=ApiKey.CONSUMER_GROUP_HEARTBEAT
):
    group_id: String = ""
    member_id: String = ""
    member_epoch: Int32 = 0
    instance_id: String | None = None
    rack_id: String | None = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: list[String] | None = None
    subscribed_topic_regex: String | None = since(1, default=None)
    server_assignor: String | None = None
    topic_partitions: list[TopicPartitions] | None = None


class Assignment(Value):
    topic_partitions: list[TopicPartitions] = []


class ConsumerGroupHeartbeatResponse(ResponseValue, api=ApiKey.CONSUMER_GROUP_HEARTBEAT):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    member_id: String | None = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: Assignment | None = None
