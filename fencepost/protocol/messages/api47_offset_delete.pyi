"""Written by tests/architecture/message_stubs.py from the declarations in api47_offset_delete.py."""

from fencepost.protocol.schema import RequestValue, ResponseValue, Value

class OffsetDeleteRequestPartition(Value):
    partition_index: int
    def __init__(self, *, partition_index: int = ...) -> None: ...

class OffsetDeleteRequestTopic(Value):
    name: str
    partitions: list[OffsetDeleteRequestPartition]
    def __init__(self, *, name: str = ..., partitions: list[OffsetDeleteRequestPartition] = ...) -> None: ...

class OffsetDeleteRequest(RequestValue[OffsetDeleteResponse]):
    group_id: str
    topics: list[OffsetDeleteRequestTopic]
    def __init__(self, *, group_id: str = ..., topics: list[OffsetDeleteRequestTopic] = ...) -> None: ...

class OffsetDeleteResponsePartition(Value):
    partition_index: int
    error_code: int
    def __init__(self, *, partition_index: int = ..., error_code: int = ...) -> None: ...

class OffsetDeleteResponseTopic(Value):
    name: str
    partitions: list[OffsetDeleteResponsePartition]
    def __init__(self, *, name: str = ..., partitions: list[OffsetDeleteResponsePartition] = ...) -> None: ...

class OffsetDeleteResponse(ResponseValue):
    error_code: int
    throttle_time_ms: int
    topics: list[OffsetDeleteResponseTopic]
    def __init__(
        self, *, error_code: int = ..., throttle_time_ms: int = ..., topics: list[OffsetDeleteResponseTopic] = ...
    ) -> None: ...
