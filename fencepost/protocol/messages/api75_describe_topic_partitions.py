"""DescribeTopicPartitions (75): partitions of topics in pages (KIP-966)."""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Bool, Int16, Int32, RequestValue, ResponseValue, String, Uuid, Value


class TopicRequest(Value):
    name: String = ""


class Cursor(Value):
    topic_name: String = ""
    partition_index: Int32 = 0


class DescribeTopicPartitionsRequest(
    RequestValue["DescribeTopicPartitionsResponse"], api=ApiKey.DESCRIBE_TOPIC_PARTITIONS
):
    topics: list[TopicRequest] = []
    response_partition_limit: Int32 = 2000
    cursor: Cursor | None = None


class DescribeTopicPartitionsResponsePartition(Value):
    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = -1
    replica_nodes: list[Int32] = []
    isr_nodes: list[Int32] = []
    eligible_leader_replicas: list[Int32] | None = None
    last_known_elr: list[Int32] | None = None
    offline_replicas: list[Int32] = []


class DescribeTopicPartitionsResponseTopic(Value):
    error_code: Int16 = 0
    name: String | None = ""
    topic_id: Uuid = bytes(16)
    is_internal: Bool = False
    partitions: list[DescribeTopicPartitionsResponsePartition] = []
    topic_authorized_operations: Int32 = -2147483648


class DescribeTopicPartitionsResponse(ResponseValue, api=ApiKey.DESCRIBE_TOPIC_PARTITIONS):
    throttle_time_ms: Int32 = 0
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    next_cursor: Cursor | None = None
