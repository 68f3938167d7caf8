"""DescribeTopicPartitions (75): partitions of topics in pages (KIP-966)."""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Array, Bool, Field, Int16, Int32, Request, Response, String, Struct, Uuid

TopicRequest = Struct(
    "TopicRequest",
    "name" / String,
)

Cursor = Struct(
    "Cursor",
    "topic_name" / String,
    "partition_index" / Int32,
)

DescribeTopicPartitionsRequest = Request(
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    "topics" / Array(TopicRequest),
    "response_partition_limit" / Field(Int32, default=2000),
    "cursor" / Field(Cursor, nullable=0),
)

DescribeTopicPartitionsResponsePartition = Struct(
    "DescribeTopicPartitionsResponsePartition",
    "error_code" / Int16,
    "partition_index" / Int32,
    "leader_id" / Int32,
    "leader_epoch" / Field(Int32, default=-1),
    "replica_nodes" / Array(Int32),
    "isr_nodes" / Array(Int32),
    "eligible_leader_replicas" / Field(Array(Int32), default=None, nullable=0),
    "last_known_elr" / Field(Array(Int32), default=None, nullable=0),
    "offline_replicas" / Array(Int32),
)

DescribeTopicPartitionsResponseTopic = Struct(
    "DescribeTopicPartitionsResponseTopic",
    "error_code" / Int16,
    "name" / Field(String, nullable=0),
    "topic_id" / Uuid,
    "is_internal" / Bool,
    "partitions" / Array(DescribeTopicPartitionsResponsePartition),
    "topic_authorized_operations" / Field(Int32, default=-2147483648),
)

DescribeTopicPartitionsResponse = Response(
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    "throttle_time_ms" / Int32,
    "topics" / Array(DescribeTopicPartitionsResponseTopic),
    "next_cursor" / Field(Cursor, nullable=0),
)
