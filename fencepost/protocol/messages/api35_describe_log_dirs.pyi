"""Written by tests/architecture/message_stubs.py from the declarations in api35_describe_log_dirs.py."""

from fencepost.protocol.schema import RequestValue, ResponseValue, Value

class DescribableLogDirTopic(Value):
    topic: str
    partitions: list[int]
    def __init__(self, *, topic: str = ..., partitions: list[int] = ...) -> None: ...

class DescribeLogDirsRequest(RequestValue[DescribeLogDirsResponse]):
    topics: list[DescribableLogDirTopic] | None
    def __init__(self, *, topics: list[DescribableLogDirTopic] | None = ...) -> None: ...

class DescribeLogDirsPartition(Value):
    partition_index: int
    partition_size: int
    offset_lag: int
    is_future_key: bool
    def __init__(
        self, *, partition_index: int = ..., partition_size: int = ..., offset_lag: int = ..., is_future_key: bool = ...
    ) -> None: ...

class DescribeLogDirsTopic(Value):
    name: str
    partitions: list[DescribeLogDirsPartition]
    def __init__(self, *, name: str = ..., partitions: list[DescribeLogDirsPartition] = ...) -> None: ...

class DescribeLogDirsResult(Value):
    error_code: int
    log_dir: str
    topics: list[DescribeLogDirsTopic]
    total_bytes: int
    usable_bytes: int
    is_cordoned: bool
    def __init__(
        self,
        *,
        error_code: int = ...,
        log_dir: str = ...,
        topics: list[DescribeLogDirsTopic] = ...,
        total_bytes: int = ...,
        usable_bytes: int = ...,
        is_cordoned: bool = ...,
    ) -> None: ...

class DescribeLogDirsResponse(ResponseValue):
    throttle_time_ms: int
    error_code: int
    results: list[DescribeLogDirsResult]
    def __init__(
        self, *, throttle_time_ms: int = ..., error_code: int = ..., results: list[DescribeLogDirsResult] = ...
    ) -> None: ...
