"""Written by tests/architecture/message_stubs.py from the declarations in api55_describe_quorum.py."""

from fencepost.protocol.schema import RequestValue, ResponseValue, Value

class PartitionData(Value):
    partition_index: int
    def __init__(self, *, partition_index: int = ...) -> None: ...

class TopicData(Value):
    topic_name: str
    partitions: list[PartitionData]
    def __init__(self, *, topic_name: str = ..., partitions: list[PartitionData] = ...) -> None: ...

class DescribeQuorumRequest(RequestValue[DescribeQuorumResponse]):
    topics: list[TopicData]
    def __init__(self, *, topics: list[TopicData] = ...) -> None: ...

class ReplicaState(Value):
    replica_id: int
    replica_directory_id: bytes
    log_end_offset: int
    last_fetch_timestamp: int
    last_caught_up_timestamp: int
    def __init__(
        self,
        *,
        replica_id: int = ...,
        replica_directory_id: bytes = ...,
        log_end_offset: int = ...,
        last_fetch_timestamp: int = ...,
        last_caught_up_timestamp: int = ...,
    ) -> None: ...

class PartitionDataResponse(Value):
    partition_index: int
    error_code: int
    error_message: str | None
    leader_id: int
    leader_epoch: int
    high_watermark: int
    current_voters: list[ReplicaState]
    observers: list[ReplicaState]
    def __init__(
        self,
        *,
        partition_index: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        leader_id: int = ...,
        leader_epoch: int = ...,
        high_watermark: int = ...,
        current_voters: list[ReplicaState] = ...,
        observers: list[ReplicaState] = ...,
    ) -> None: ...

class TopicDataResponse(Value):
    topic_name: str
    partitions: list[PartitionDataResponse]
    def __init__(self, *, topic_name: str = ..., partitions: list[PartitionDataResponse] = ...) -> None: ...

class Listener(Value):
    name: str
    host: str
    port: int
    def __init__(self, *, name: str = ..., host: str = ..., port: int = ...) -> None: ...

class Node(Value):
    node_id: int
    listeners: list[Listener]
    def __init__(self, *, node_id: int = ..., listeners: list[Listener] = ...) -> None: ...

class DescribeQuorumResponse(ResponseValue):
    error_code: int
    error_message: str | None
    topics: list[TopicDataResponse]
    nodes: list[Node]
    def __init__(
        self,
        *,
        error_code: int = ...,
        error_message: str | None = ...,
        topics: list[TopicDataResponse] = ...,
        nodes: list[Node] = ...,
    ) -> None: ...
