"""Written by tests/architecture/message_stubs.py from the declarations in api02_list_offsets.py."""

from fencepost.protocol.schema import RequestValue, ResponseValue, Value

class ListOffsetsPartition(Value):
    partition_index: int
    current_leader_epoch: int
    timestamp: int
    max_num_offsets: int
    def __init__(
        self,
        *,
        partition_index: int = ...,
        current_leader_epoch: int = ...,
        timestamp: int = ...,
        max_num_offsets: int = ...,
    ) -> None: ...

class ListOffsetsTopic(Value):
    name: str
    partitions: list[ListOffsetsPartition]
    def __init__(self, *, name: str = ..., partitions: list[ListOffsetsPartition] = ...) -> None: ...

class ListOffsetsRequest(RequestValue[ListOffsetsResponse]):
    replica_id: int
    isolation_level: int
    topics: list[ListOffsetsTopic]
    timeout_ms: int
    def __init__(
        self,
        *,
        replica_id: int = ...,
        isolation_level: int = ...,
        topics: list[ListOffsetsTopic] = ...,
        timeout_ms: int = ...,
    ) -> None: ...

class ListOffsetsPartitionResponse(Value):
    partition_index: int
    error_code: int
    old_style_offsets: list[int]
    timestamp: int
    offset: int
    leader_epoch: int
    def __init__(
        self,
        *,
        partition_index: int = ...,
        error_code: int = ...,
        old_style_offsets: list[int] = ...,
        timestamp: int = ...,
        offset: int = ...,
        leader_epoch: int = ...,
    ) -> None: ...

class ListOffsetsTopicResponse(Value):
    name: str
    partitions: list[ListOffsetsPartitionResponse]
    def __init__(self, *, name: str = ..., partitions: list[ListOffsetsPartitionResponse] = ...) -> None: ...

class ListOffsetsResponse(ResponseValue):
    throttle_time_ms: int
    topics: list[ListOffsetsTopicResponse]
    def __init__(self, *, throttle_time_ms: int = ..., topics: list[ListOffsetsTopicResponse] = ...) -> None: ...
