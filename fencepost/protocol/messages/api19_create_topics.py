"""CreateTopics (19): new topics with partitions and settings.

v1 brings validateOnly, v4 broker defaults (KIP-464), v5 the settings in the answer (KIP-525), v7 topic ids.
"""

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

VERSIONS = (0, 7)
FLEXIBLE = 5

CreatableReplicaAssignment = Struct(
    "CreatableReplicaAssignment",
    "partition_index" / Int32,
    "broker_ids" / Array(Int32),
)

CreatableTopicConfig = Struct(
    "CreatableTopicConfig",
    "name" / String,
    "value" / Field(String, nullable=0),
)

CreatableTopic = Struct(
    "CreatableTopic",
    "name" / String,
    "num_partitions" / Int32,
    "replication_factor" / Int16,
    "assignments" / Array(CreatableReplicaAssignment),
    "configs" / Array(CreatableTopicConfig),
)

CreateTopicsRequest = Request(
    19,
    "CreateTopicsRequest",
    VERSIONS,
    FLEXIBLE,
    "topics" / Array(CreatableTopic),
    "timeout_ms" / Field(Int32, default=60000),
    "validate_only" / Since(1, Bool),
)

CreatableTopicConfigs = Struct(
    "CreatableTopicConfigs",
    "name" / Since(5, String),
    "value" / Since(5, String, nullable=5),
    "read_only" / Since(5, Bool),
    "config_source" / Since(5, Int8, default=-1),
    "is_sensitive" / Since(5, Bool),
)

CreatableTopicResult = Struct(
    "CreatableTopicResult",
    "name" / String,
    "topic_id" / Since(7, Uuid),
    "error_code" / Int16,
    "error_message" / Since(1, String, nullable=0),
    "topic_config_error_code" / Since(5, Int16, tag=0),
    "num_partitions" / Since(5, Int32, default=-1),
    "replication_factor" / Since(5, Int16, default=-1),
    "configs" / Since(5, Array(CreatableTopicConfigs), nullable=5),
)

CreateTopicsResponse = Response(
    19,
    "CreateTopicsResponse",
    VERSIONS,
    FLEXIBLE,
    "throttle_time_ms" / Since(2, Int32),
    "topics" / Array(CreatableTopicResult),
)
