"""AlterPartitionReassignments (45): begin or cancel moves of replicas (KIP-455).

v1 lets the client forbid a change of the replication factor (KIP-860). With the tags `topic_id` and `partition_epoch`
(fencepost extensions) the leader of a partition reports that it has handed it over. The tag `cores` asks for another
number of cores, and for the moves that this needs.
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Bool, Int16, Int32, RequestValue, ResponseValue, String, Uuid, Value, since


class ReassignablePartition(Value):
    partition_index: Int32 = 0
    replicas: list[Int32] | None = None
    topic_id: Uuid = since(0, tag=1000)
    partition_epoch: Int32 = since(0, tag=1001, default=-1)


class ReassignableTopic(Value):
    name: String = ""
    partitions: list[ReassignablePartition] = []


class AlterPartitionReassignmentsRequest(
    RequestValue["AlterPartitionReassignmentsResponse"], api=ApiKey.ALTER_PARTITION_REASSIGNMENTS
):
    timeout_ms: Int32 = 60000
    allow_replication_factor_change: Bool = since(1, default=True)
    topics: list[ReassignableTopic] = []
    cores: Int32 = since(0, tag=1000, default=-1)


class ReassignablePartitionResponse(Value):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""


class ReassignableTopicResponse(Value):
    name: String = ""
    partitions: list[ReassignablePartitionResponse] = []


class AlterPartitionReassignmentsResponse(ResponseValue, api=ApiKey.ALTER_PARTITION_REASSIGNMENTS):
    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: Bool = since(1, default=True)
    error_code: Int16 = 0
    error_message: String | None = ""
    responses: list[ReassignableTopicResponse] = []
