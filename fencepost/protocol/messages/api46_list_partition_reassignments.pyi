"""Written by tests/architecture/message_stubs.py from the declarations in api46_list_partition_reassignments.py."""

from fencepost.protocol.schema import RequestValue, ResponseValue, Value

class ListPartitionReassignmentsTopics(Value):
    name: str
    partition_indexes: list[int]
    def __init__(self, *, name: str = ..., partition_indexes: list[int] = ...) -> None: ...

class ListPartitionReassignmentsRequest(RequestValue[ListPartitionReassignmentsResponse]):
    timeout_ms: int
    topics: list[ListPartitionReassignmentsTopics] | None
    def __init__(
        self, *, timeout_ms: int = ..., topics: list[ListPartitionReassignmentsTopics] | None = ...
    ) -> None: ...

class OngoingPartitionReassignment(Value):
    partition_index: int
    replicas: list[int]
    adding_replicas: list[int]
    removing_replicas: list[int]
    def __init__(
        self,
        *,
        partition_index: int = ...,
        replicas: list[int] = ...,
        adding_replicas: list[int] = ...,
        removing_replicas: list[int] = ...,
    ) -> None: ...

class OngoingTopicReassignment(Value):
    name: str
    partitions: list[OngoingPartitionReassignment]
    def __init__(self, *, name: str = ..., partitions: list[OngoingPartitionReassignment] = ...) -> None: ...

class ListPartitionReassignmentsResponse(ResponseValue):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    topics: list[OngoingTopicReassignment]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        topics: list[OngoingTopicReassignment] = ...,
    ) -> None: ...
