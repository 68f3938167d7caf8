"""Written by tests/architecture/message_stubs.py from the declarations in api23_offset_for_leader_epoch.py."""

from fencepost.protocol.schema import RequestValue, ResponseValue, Value

class OffsetForLeaderPartition(Value):
    partition: int
    current_leader_epoch: int
    leader_epoch: int
    def __init__(self, *, partition: int = ..., current_leader_epoch: int = ..., leader_epoch: int = ...) -> None: ...

class OffsetForLeaderTopic(Value):
    topic: str
    partitions: list[OffsetForLeaderPartition]
    def __init__(self, *, topic: str = ..., partitions: list[OffsetForLeaderPartition] = ...) -> None: ...

class OffsetForLeaderEpochRequest(RequestValue[OffsetForLeaderEpochResponse]):
    replica_id: int
    topics: list[OffsetForLeaderTopic]
    def __init__(self, *, replica_id: int = ..., topics: list[OffsetForLeaderTopic] = ...) -> None: ...

class EpochEndOffset(Value):
    error_code: int
    partition: int
    leader_epoch: int
    end_offset: int
    def __init__(
        self, *, error_code: int = ..., partition: int = ..., leader_epoch: int = ..., end_offset: int = ...
    ) -> None: ...

class OffsetForLeaderTopicResult(Value):
    topic: str
    partitions: list[EpochEndOffset]
    def __init__(self, *, topic: str = ..., partitions: list[EpochEndOffset] = ...) -> None: ...

class OffsetForLeaderEpochResponse(ResponseValue):
    throttle_time_ms: int
    topics: list[OffsetForLeaderTopicResult]
    def __init__(self, *, throttle_time_ms: int = ..., topics: list[OffsetForLeaderTopicResult] = ...) -> None: ...
