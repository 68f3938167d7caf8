"""CreateTopics (19): new topics with partitions and settings.

v1 brings validateOnly, v4 broker defaults (KIP-464), v5 the settings in the answer (KIP-525), v7 topic ids. Tag 1000 is
fencepost's (docs/decisions/0034-a-plan-at-once.md): a plan in a request that names no topics; Kafka skips it.
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

PlannedSetting = Struct(
    "PlannedSetting",
    "name" / String,
    "value" / Field(String, nullable=0),
)

PlannedTopic = Struct(
    "PlannedTopic",
    "name" / String,
    "partitions" / Field(Int32, default=-1),
    "replication_factor" / Field(Int16, default=-1),
    "absent" / Bool,
    "settings" / Array(PlannedSetting),
)

PlannedResource = Struct(
    "PlannedResource",
    "resource_type" / Int8,
    "resource_name" / String,
    "settings" / Array(PlannedSetting),
)

PlannedAcl = Struct(
    "PlannedAcl",
    "resource_type" / Int8,
    "resource_name" / String,
    "pattern_type" / Int8,
    "principal" / String,
    "host" / String,
    "operation" / Int8,
    "permission_type" / Int8,
    "absent" / Bool,
)

Plan = Struct(
    "Plan",
    "topics" / Array(PlannedTopic),
    "resources" / Array(PlannedResource),
    "acls" / Array(PlannedAcl),
)

CreateTopicsRequest = Request(
    ApiKey.CREATE_TOPICS,
    "topics" / Array(CreatableTopic),
    "timeout_ms" / Field(Int32, default=60000),
    "validate_only" / Since(1, Bool),
    "plan" / Since(5, Plan, tag=1000),
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

PlanChange = Struct(
    "PlanChange",
    "action" / String,
    "kind" / String,
    "name" / String,
    "setting" / String,
    "before" / Field(String, nullable=0),
    "after" / Field(String, nullable=0),
)

PlanProblem = Struct(
    "PlanProblem",
    "kind" / String,
    "name" / String,
    "error_code" / Int16,
    "error_message" / Field(String, nullable=0),
)

PlanOutcome = Struct(
    "PlanOutcome",
    "changes" / Array(PlanChange),
    "problems" / Array(PlanProblem),
)

CreateTopicsResponse = Response(
    ApiKey.CREATE_TOPICS,
    "throttle_time_ms" / Since(2, Int32),
    "topics" / Array(CreatableTopicResult),
    "plan" / Since(5, PlanOutcome, tag=1000),
)
