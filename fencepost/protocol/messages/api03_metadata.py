"""Metadata (3): brokers, topics, partitions and their leaders.

v4 lets the client forbid auto-creation, v7 brings leader epochs, v8 authorized operations, v10 topic ids (KIP-516),
v12 nullable topic names, v13 an error for the whole answer.
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Array, Bool, Field, Int16, Int32, Request, Response, Since, String, Struct, Uuid

MetadataRequestTopic = Struct(
    "MetadataRequestTopic",
    "topic_id" / Since(10, Uuid),
    "name" / Field(String, nullable=10),
)

MetadataRequest = Request(
    ApiKey.METADATA,
    "topics" / Field(Array(MetadataRequestTopic), nullable=1),
    "allow_auto_topic_creation" / Since(4, Bool, default=True),
    "include_cluster_authorized_operations" / Field(Bool, 8, 10),
    "include_topic_authorized_operations" / Since(8, Bool),
)

MetadataResponseBroker = Struct(
    "MetadataResponseBroker",
    "node_id" / Int32,
    "host" / String,
    "port" / Int32,
    "rack" / Since(1, String, default=None, nullable=1),
)

MetadataResponsePartition = Struct(
    "MetadataResponsePartition",
    "error_code" / Int16,
    "partition_index" / Int32,
    "leader_id" / Int32,
    "leader_epoch" / Since(7, Int32, default=-1),
    "replica_nodes" / Array(Int32),
    "isr_nodes" / Array(Int32),
    "offline_replicas" / Since(5, Array(Int32)),
)

MetadataResponseTopic = Struct(
    "MetadataResponseTopic",
    "error_code" / Int16,
    "name" / Field(String, nullable=12),
    "topic_id" / Since(10, Uuid),
    "is_internal" / Since(1, Bool),
    "partitions" / Array(MetadataResponsePartition),
    "topic_authorized_operations" / Since(8, Int32, default=-2147483648),
)

MetadataResponse = Response(
    ApiKey.METADATA,
    "throttle_time_ms" / Since(3, Int32),
    "brokers" / Array(MetadataResponseBroker),
    "cluster_id" / Since(2, String, default=None, nullable=2),
    "controller_id" / Since(1, Int32, default=-1),
    "topics" / Array(MetadataResponseTopic),
    "cluster_authorized_operations" / Field(Int32, 8, 10, default=-2147483648),
    "error_code" / Since(13, Int16),
)
