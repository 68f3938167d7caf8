"""Metadata (3): brokers, topics, partitions and their leaders.

v4 lets the client forbid auto-creation, v7 brings leader epochs, v8 authorized operations, v10 topic ids (KIP-516),
v12 nullable topic names, v13 an error for the whole answer.
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Bool, Int16, Int32, RequestValue, ResponseValue, String, Uuid, Value, field, since


class MetadataRequestTopic(Value):
    topic_id: Uuid = since(10)
    name: String | None = field(default="", nullable=10)


class MetadataRequest(RequestValue["MetadataResponse"], api=ApiKey.METADATA):
    topics: list[MetadataRequestTopic] | None = field(default=[], nullable=1)
    allow_auto_topic_creation: Bool = since(4, default=True)
    include_cluster_authorized_operations: Bool = since(8, until=10)
    include_topic_authorized_operations: Bool = since(8)


class MetadataResponseBroker(Value):
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = since(1, default=None)


class MetadataResponsePartition(Value):
    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = since(7, default=-1)
    replica_nodes: list[Int32] = []
    isr_nodes: list[Int32] = []
    offline_replicas: list[Int32] = since(5)


class MetadataResponseTopic(Value):
    error_code: Int16 = 0
    name: String | None = field(default="", nullable=12)
    topic_id: Uuid = since(10)
    is_internal: Bool = since(1)
    partitions: list[MetadataResponsePartition] = []
    topic_authorized_operations: Int32 = since(8, default=-2147483648)


class MetadataResponse(ResponseValue, api=ApiKey.METADATA):
    throttle_time_ms: Int32 = since(3)
    brokers: list[MetadataResponseBroker] = []
    cluster_id: String | None = since(2, default=None)
    controller_id: Int32 = since(1, default=-1)
    topics: list[MetadataResponseTopic] = []
    cluster_authorized_operations: Int32 = since(8, until=10, default=-2147483648)
    error_code: Int16 = since(13)
