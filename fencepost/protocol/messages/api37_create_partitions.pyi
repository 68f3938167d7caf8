"""Written by tests/architecture/message_stubs.py from the declarations in api37_create_partitions.py."""

from fencepost.protocol.schema import RequestValue, ResponseValue, Value

class CreatePartitionsAssignment(Value):
    broker_ids: list[int]
    def __init__(self, *, broker_ids: list[int] = ...) -> None: ...

class CreatePartitionsTopic(Value):
    name: str
    count: int
    assignments: list[CreatePartitionsAssignment] | None
    def __init__(
        self, *, name: str = ..., count: int = ..., assignments: list[CreatePartitionsAssignment] | None = ...
    ) -> None: ...

class CreatePartitionsRequest(RequestValue[CreatePartitionsResponse]):
    topics: list[CreatePartitionsTopic]
    timeout_ms: int
    validate_only: bool
    def __init__(
        self, *, topics: list[CreatePartitionsTopic] = ..., timeout_ms: int = ..., validate_only: bool = ...
    ) -> None: ...

class CreatePartitionsTopicResult(Value):
    name: str
    error_code: int
    error_message: str | None
    def __init__(self, *, name: str = ..., error_code: int = ..., error_message: str | None = ...) -> None: ...

class CreatePartitionsResponse(ResponseValue):
    throttle_time_ms: int
    results: list[CreatePartitionsTopicResult]
    def __init__(self, *, throttle_time_ms: int = ..., results: list[CreatePartitionsTopicResult] = ...) -> None: ...
