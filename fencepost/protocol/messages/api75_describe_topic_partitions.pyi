"""Written by tests/architecture/message_stubs.py from the declarations in api75_describe_topic_partitions.py."""

from fencepost.protocol.schema import RequestValue, ResponseValue, Value

class TopicRequest(Value):
    name: str
    def __init__(self, *, name: str = ...) -> None: ...

class Cursor(Value):
    topic_name: str
    partition_index: int
    def __init__(self, *, topic_name: str = ..., partition_index: int = ...) -> None: ...

class DescribeTopicPartitionsRequest(RequestValue[DescribeTopicPartitionsResponse]):
    topics: list[TopicRequest]
    response_partition_limit: int
    cursor: Cursor | None
    def __init__(
        self, *, topics: list[TopicRequest] = ..., response_partition_limit: int = ..., cursor: Cursor | None = ...
    ) -> None: ...

class DescribeTopicPartitionsResponsePartition(Value):
    error_code: int
    partition_index: int
    leader_id: int
    leader_epoch: int
    replica_nodes: list[int]
    isr_nodes: list[int]
    eligible_leader_replicas: list[int] | None
    last_known_elr: list[int] | None
    offline_replicas: list[int]
    def __init__(
        self,
        *,
        error_code: int = ...,
        partition_index: int = ...,
        leader_id: int = ...,
        leader_epoch: int = ...,
        replica_nodes: list[int] = ...,
        isr_nodes: list[int] = ...,
        eligible_leader_replicas: list[int] | None = ...,
        last_known_elr: list[int] | None = ...,
        offline_replicas: list[int] = ...,
    ) -> None: ...

class DescribeTopicPartitionsResponseTopic(Value):
    error_code: int
    name: str | None
    topic_id: bytes
    is_internal: bool
    partitions: list[DescribeTopicPartitionsResponsePartition]
    topic_authorized_operations: int
    def __init__(
        self,
        *,
        error_code: int = ...,
        name: str | None = ...,
        topic_id: bytes = ...,
        is_internal: bool = ...,
        partitions: list[DescribeTopicPartitionsResponsePartition] = ...,
        topic_authorized_operations: int = ...,
    ) -> None: ...

class DescribeTopicPartitionsResponse(ResponseValue):
    throttle_time_ms: int
    topics: list[DescribeTopicPartitionsResponseTopic]
    next_cursor: Cursor | None
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        topics: list[DescribeTopicPartitionsResponseTopic] = ...,
        next_cursor: Cursor | None = ...,
    ) -> None: ...
