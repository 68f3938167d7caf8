"""DescribeProducers (61): the active producers of a partition and their open transactions (KIP-664)."""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Int16, Int32, Int64, RequestValue, ResponseValue, String, Value


class TopicRequest(Value):
    name: String = ""
    partition_indexes: list[Int32] = []


class DescribeProducersRequest(RequestValue["DescribeProducersResponse"], api=ApiKey.DESCRIBE_PRODUCERS):
    topics: list[TopicRequest] = []


class ProducerState(Value):
    producer_id: Int64 = 0
    producer_epoch: Int32 = 0
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32 = 0
    current_txn_start_offset: Int64 = -1


class PartitionResponse(Value):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    active_producers: list[ProducerState] = []


class TopicResponse(Value):
    name: String = ""
    partitions: list[PartitionResponse] = []


class DescribeProducersResponse(ResponseValue, api=ApiKey.DESCRIBE_PRODUCERS):
    throttle_time_ms: Int32 = 0
    topics: list[TopicResponse] = []
