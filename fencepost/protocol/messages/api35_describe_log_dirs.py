"""DescribeLogDirs (35): the directories of a broker and the sizes of their replicas (KIP-113).

v3 brings an error for the whole answer, v4 sizes of the volumes (KIP-827), v5 cordoned directories (KIP-1066). Tag 1000
is fencepost's (docs/decisions/0016-tagged-fields.md).
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Bool, Int16, Int32, Int64, RequestValue, ResponseValue, String, Value, since


class DescribableLogDirTopic(Value):
    topic: String = ""
    partitions: list[Int32] = []


class DescribeLogDirsRequest(RequestValue["DescribeLogDirsResponse"], api=ApiKey.DESCRIBE_LOG_DIRS):
    topics: list[DescribableLogDirTopic] | None = []
    pause_ms: Int32 = since(2, default=-1, tag=1000)


class DescribeLogDirsPartition(Value):
    partition_index: Int32 = 0
    partition_size: Int64 = 0
    offset_lag: Int64 = 0
    is_future_key: Bool = False


class DescribeLogDirsTopic(Value):
    name: String = ""
    partitions: list[DescribeLogDirsPartition] = []


class DescribeLogDirsResult(Value):
    error_code: Int16 = 0
    log_dir: String = ""
    topics: list[DescribeLogDirsTopic] = []
    total_bytes: Int64 = since(4, default=-1)
    usable_bytes: Int64 = since(4, default=-1)
    is_cordoned: Bool = since(5)


class LogEnd(Value):
    partition_index: Int32 = 0
    high_watermark: Int64 = 0


class LogEndTopic(Value):
    name: String = ""
    partitions: list[LogEnd] = []


class LogEnds(Value):
    since_us: Int64 = 0
    until_us: Int64 = 0
    topics: list[LogEndTopic] = []


class DescribeLogDirsResponse(ResponseValue, api=ApiKey.DESCRIBE_LOG_DIRS):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = since(3)
    results: list[DescribeLogDirsResult] = []
    ends: LogEnds | None = since(2, tag=1000)
