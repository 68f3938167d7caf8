"""Written by tests/architecture/message_stubs.py from the declarations in api08_offset_commit.py."""

from fencepost.protocol.schema import RequestValue, ResponseValue, Value

class OffsetCommitRequestPartition(Value):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    commit_timestamp: int
    committed_metadata: str | None
    def __init__(
        self,
        *,
        partition_index: int = ...,
        committed_offset: int = ...,
        committed_leader_epoch: int = ...,
        commit_timestamp: int = ...,
        committed_metadata: str | None = ...,
    ) -> None: ...

class OffsetCommitRequestTopic(Value):
    name: str
    topic_id: bytes
    partitions: list[OffsetCommitRequestPartition]
    def __init__(
        self, *, name: str = ..., topic_id: bytes = ..., partitions: list[OffsetCommitRequestPartition] = ...
    ) -> None: ...

class OffsetCommitRequest(RequestValue[OffsetCommitResponse]):
    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    group_instance_id: str | None
    retention_time_ms: int
    topics: list[OffsetCommitRequestTopic]
    def __init__(
        self,
        *,
        group_id: str = ...,
        generation_id_or_member_epoch: int = ...,
        member_id: str = ...,
        group_instance_id: str | None = ...,
        retention_time_ms: int = ...,
        topics: list[OffsetCommitRequestTopic] = ...,
    ) -> None: ...

class OffsetCommitResponsePartition(Value):
    partition_index: int
    error_code: int
    def __init__(self, *, partition_index: int = ..., error_code: int = ...) -> None: ...

class OffsetCommitResponseTopic(Value):
    name: str
    topic_id: bytes
    partitions: list[OffsetCommitResponsePartition]
    def __init__(
        self, *, name: str = ..., topic_id: bytes = ..., partitions: list[OffsetCommitResponsePartition] = ...
    ) -> None: ...

class OffsetCommitResponse(ResponseValue):
    throttle_time_ms: int
    topics: list[OffsetCommitResponseTopic]
    def __init__(self, *, throttle_time_ms: int = ..., topics: list[OffsetCommitResponseTopic] = ...) -> None: ...
