"""Written by tests/architecture/message_stubs.py from the declarations in api45_alter_partition_reassignments.py."""

from fencepost.protocol.schema import RequestValue, ResponseValue, Value

class ReassignablePartition(Value):
    partition_index: int
    replicas: list[int] | None
    def __init__(self, *, partition_index: int = ..., replicas: list[int] | None = ...) -> None: ...

class ReassignableTopic(Value):
    name: str
    partitions: list[ReassignablePartition]
    def __init__(self, *, name: str = ..., partitions: list[ReassignablePartition] = ...) -> None: ...

class AlterPartitionReassignmentsRequest(RequestValue[AlterPartitionReassignmentsResponse]):
    timeout_ms: int
    allow_replication_factor_change: bool
    topics: list[ReassignableTopic]
    def __init__(
        self,
        *,
        timeout_ms: int = ...,
        allow_replication_factor_change: bool = ...,
        topics: list[ReassignableTopic] = ...,
    ) -> None: ...

class ReassignablePartitionResponse(Value):
    partition_index: int
    error_code: int
    error_message: str | None
    def __init__(
        self, *, partition_index: int = ..., error_code: int = ..., error_message: str | None = ...
    ) -> None: ...

class ReassignableTopicResponse(Value):
    name: str
    partitions: list[ReassignablePartitionResponse]
    def __init__(self, *, name: str = ..., partitions: list[ReassignablePartitionResponse] = ...) -> None: ...

class AlterPartitionReassignmentsResponse(ResponseValue):
    throttle_time_ms: int
    allow_replication_factor_change: bool
    error_code: int
    error_message: str | None
    responses: list[ReassignableTopicResponse]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        allow_replication_factor_change: bool = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        responses: list[ReassignableTopicResponse] = ...,
    ) -> None: ...
