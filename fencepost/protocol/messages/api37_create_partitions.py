"""CreatePartitions (37): grow topics."""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Array, Bool, Field, Int16, Int32, Request, Response, String, Struct

CreatePartitionsAssignment = Struct(
    "CreatePartitionsAssignment",
    "broker_ids" / Array(Int32),
)

CreatePartitionsTopic = Struct(
    "CreatePartitionsTopic",
    "name" / String,
    "count" / Int32,
    "assignments" / Field(Array(CreatePartitionsAssignment), nullable=0),
)

CreatePartitionsRequest = Request(
    ApiKey.CREATE_PARTITIONS,
    "topics" / Array(CreatePartitionsTopic),
    "timeout_ms" / Int32,
    "validate_only" / Bool,
)

CreatePartitionsTopicResult = Struct(
    "CreatePartitionsTopicResult",
    "name" / String,
    "error_code" / Int16,
    "error_message" / Field(String, default=None, nullable=0),
)

CreatePartitionsResponse = Response(
    ApiKey.CREATE_PARTITIONS,
    "throttle_time_ms" / Int32,
    "results" / Array(CreatePartitionsTopicResult),
)
