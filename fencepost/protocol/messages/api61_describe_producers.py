"""DescribeProducers (61): the active producers of a partition and their open transactions (KIP-664)."""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Array, Field, Int16, Int32, Int64, Request, Response, String, Struct

TopicRequest = Struct(
    "TopicRequest",
    "name" / String,
    "partition_indexes" / Array(Int32),
)

DescribeProducersRequest = Request(
    ApiKey.DESCRIBE_PRODUCERS,
    "topics" / Array(TopicRequest),
)

ProducerState = Struct(
    "ProducerState",
    "producer_id" / Int64,
    "producer_epoch" / Int32,
    "last_sequence" / Field(Int32, default=-1),
    "last_timestamp" / Field(Int64, default=-1),
    "coordinator_epoch" / Int32,
    "current_txn_start_offset" / Field(Int64, default=-1),
)

PartitionResponse = Struct(
    "PartitionResponse",
    "partition_index" / Int32,
    "error_code" / Int16,
    "error_message" / Field(String, default=None, nullable=0),
    "active_producers" / Array(ProducerState),
)

TopicResponse = Struct(
    "TopicResponse",
    "name" / String,
    "partitions" / Array(PartitionResponse),
)

DescribeProducersResponse = Response(
    ApiKey.DESCRIBE_PRODUCERS,
    "throttle_time_ms" / Int32,
    "topics" / Array(TopicResponse),
)
