"""Written by tests/architecture/message_stubs.py from the declarations in api43_elect_leaders.py."""

from fencepost.protocol.schema import RequestValue, ResponseValue, Value

class TopicPartitions(Value):
    topic: str
    partitions: list[int]
    def __init__(self, *, topic: str = ..., partitions: list[int] = ...) -> None: ...

class ElectLeadersRequest(RequestValue[ElectLeadersResponse]):
    election_type: int
    topic_partitions: list[TopicPartitions] | None
    timeout_ms: int
    def __init__(
        self, *, election_type: int = ..., topic_partitions: list[TopicPartitions] | None = ..., timeout_ms: int = ...
    ) -> None: ...

class PartitionResult(Value):
    partition_id: int
    error_code: int
    error_message: str | None
    def __init__(self, *, partition_id: int = ..., error_code: int = ..., error_message: str | None = ...) -> None: ...

class ReplicaElectionResult(Value):
    topic: str
    partition_result: list[PartitionResult]
    def __init__(self, *, topic: str = ..., partition_result: list[PartitionResult] = ...) -> None: ...

class ElectLeadersResponse(ResponseValue):
    throttle_time_ms: int
    error_code: int
    replica_election_results: list[ReplicaElectionResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        replica_election_results: list[ReplicaElectionResult] = ...,
    ) -> None: ...
