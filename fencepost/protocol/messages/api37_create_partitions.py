"""CreatePartitions (37): grow topics."""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Bool, Int16, Int32, RequestValue, ResponseValue, String, Value


class CreatePartitionsAssignment(Value):
    broker_ids: list[Int32] = []


class CreatePartitionsTopic(Value):
    name: String = ""
    count: Int32 = 0
    assignments: list[CreatePartitionsAssignment] | None = []


class CreatePartitionsRequest(RequestValue["CreatePartitionsResponse"], api=ApiKey.CREATE_PARTITIONS):
    topics: list[CreatePartitionsTopic] = []
    timeout_ms: Int32 = 0
    validate_only: Bool = False


class CreatePartitionsTopicResult(Value):
    name: String = ""
    error_code: Int16 = 0
    error_message: String | None = None


class CreatePartitionsResponse(ResponseValue, api=ApiKey.CREATE_PARTITIONS):
    throttle_time_ms: Int32 = 0
    results: list[CreatePartitionsTopicResult] = []
