"""Written by tests/architecture/message_stubs.py from the declarations in api09_offset_fetch.py."""

from fencepost.protocol.schema import RequestValue, ResponseValue, Value

class OffsetFetchRequestTopic(Value):
    name: str
    partition_indexes: list[int]
    def __init__(self, *, name: str = ..., partition_indexes: list[int] = ...) -> None: ...

class OffsetFetchRequestTopics(Value):
    name: str
    topic_id: bytes
    partition_indexes: list[int]
    def __init__(self, *, name: str = ..., topic_id: bytes = ..., partition_indexes: list[int] = ...) -> None: ...

class OffsetFetchRequestGroup(Value):
    group_id: str
    member_id: str | None
    member_epoch: int
    topics: list[OffsetFetchRequestTopics] | None
    def __init__(
        self,
        *,
        group_id: str = ...,
        member_id: str | None = ...,
        member_epoch: int = ...,
        topics: list[OffsetFetchRequestTopics] | None = ...,
    ) -> None: ...

class OffsetFetchRequest(RequestValue[OffsetFetchResponse]):
    group_id: str
    topics: list[OffsetFetchRequestTopic] | None
    groups: list[OffsetFetchRequestGroup]
    require_stable: bool
    def __init__(
        self,
        *,
        group_id: str = ...,
        topics: list[OffsetFetchRequestTopic] | None = ...,
        groups: list[OffsetFetchRequestGroup] = ...,
        require_stable: bool = ...,
    ) -> None: ...

class OffsetFetchResponsePartition(Value):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    metadata: str | None
    error_code: int
    def __init__(
        self,
        *,
        partition_index: int = ...,
        committed_offset: int = ...,
        committed_leader_epoch: int = ...,
        metadata: str | None = ...,
        error_code: int = ...,
    ) -> None: ...

class OffsetFetchResponseTopic(Value):
    name: str
    partitions: list[OffsetFetchResponsePartition]
    def __init__(self, *, name: str = ..., partitions: list[OffsetFetchResponsePartition] = ...) -> None: ...

class OffsetFetchResponsePartitions(Value):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    metadata: str | None
    error_code: int
    def __init__(
        self,
        *,
        partition_index: int = ...,
        committed_offset: int = ...,
        committed_leader_epoch: int = ...,
        metadata: str | None = ...,
        error_code: int = ...,
    ) -> None: ...

class OffsetFetchResponseTopics(Value):
    name: str
    topic_id: bytes
    partitions: list[OffsetFetchResponsePartitions]
    def __init__(
        self, *, name: str = ..., topic_id: bytes = ..., partitions: list[OffsetFetchResponsePartitions] = ...
    ) -> None: ...

class OffsetFetchResponseGroup(Value):
    group_id: str
    topics: list[OffsetFetchResponseTopics]
    error_code: int
    def __init__(
        self, *, group_id: str = ..., topics: list[OffsetFetchResponseTopics] = ..., error_code: int = ...
    ) -> None: ...

class OffsetFetchResponse(ResponseValue):
    throttle_time_ms: int
    topics: list[OffsetFetchResponseTopic]
    error_code: int
    groups: list[OffsetFetchResponseGroup]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        topics: list[OffsetFetchResponseTopic] = ...,
        error_code: int = ...,
        groups: list[OffsetFetchResponseGroup] = ...,
    ) -> None: ...
