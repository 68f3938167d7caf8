"""ElectLeaders (43): elect leaders for partitions (KIP-183).

v1 brings the kind of election (KIP-460).
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Int8, Int16, Int32, RequestValue, ResponseValue, String, Value, since


class TopicPartitions(Value):
    topic: String = ""
    partitions: list[Int32] = []


class ElectLeadersRequest(RequestValue["ElectLeadersResponse"], api=ApiKey.ELECT_LEADERS):
    election_type: Int8 = since(1)
    topic_partitions: list[TopicPartitions] | None = []
    timeout_ms: Int32 = 60000


class PartitionResult(Value):
    partition_id: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""


class ReplicaElectionResult(Value):
    topic: String = ""
    partition_result: list[PartitionResult] = []


class ElectLeadersResponse(ResponseValue, api=ApiKey.ELECT_LEADERS):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = since(1)
    replica_election_results: list[ReplicaElectionResult] = []
