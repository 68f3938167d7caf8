"""ListPartitionReassignments (46): replicas that are being moved (KIP-455)."""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Int16, Int32, RequestValue, ResponseValue, String, Value


class ListPartitionReassignmentsTopics(Value):
    name: String = ""
    partition_indexes: list[Int32] = []


class ListPartitionReassignmentsRequest(
    RequestValue["ListPartitionReassignmentsResponse"], api=ApiKey.LIST_PARTITION_REASSIGNMENTS
):
    timeout_ms: Int32 = 60000
    topics: list[ListPartitionReassignmentsTopics] | None = None


class OngoingPartitionReassignment(Value):
    partition_index: Int32 = 0
    replicas: list[Int32] = []
    adding_replicas: list[Int32] = []
    removing_replicas: list[Int32] = []


class OngoingTopicReassignment(Value):
    name: String = ""
    partitions: list[OngoingPartitionReassignment] = []


class ListPartitionReassignmentsResponse(ResponseValue, api=ApiKey.LIST_PARTITION_REASSIGNMENTS):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
    topics: list[OngoingTopicReassignment] = []
