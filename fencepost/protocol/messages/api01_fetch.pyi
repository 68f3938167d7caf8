"""Written by tests/architecture/message_stubs.py from the declarations in api01_fetch.py."""

from collections.abc import Sequence, Sized

from fencepost.protocol.schema import Buffer, RequestValue, ResponseValue, Value

class ReplicaState(Value):
    replica_id: int
    replica_epoch: int
    def __init__(self, *, replica_id: int = ..., replica_epoch: int = ...) -> None: ...

class FetchPartition(Value):
    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    partition_max_bytes: int
    replica_directory_id: bytes
    high_watermark: int
    def __init__(
        self,
        *,
        partition: int = ...,
        current_leader_epoch: int = ...,
        fetch_offset: int = ...,
        last_fetched_epoch: int = ...,
        log_start_offset: int = ...,
        partition_max_bytes: int = ...,
        replica_directory_id: bytes = ...,
        high_watermark: int = ...,
    ) -> None: ...

class FetchTopic(Value):
    topic: str
    topic_id: bytes
    partitions: list[FetchPartition]
    def __init__(self, *, topic: str = ..., topic_id: bytes = ..., partitions: list[FetchPartition] = ...) -> None: ...

class ForgottenTopic(Value):
    topic: str
    topic_id: bytes
    partitions: list[int]
    def __init__(self, *, topic: str = ..., topic_id: bytes = ..., partitions: list[int] = ...) -> None: ...

class FetchRequest(RequestValue[FetchResponse]):
    cluster_id: str | None
    replica_id: int
    replica_state: ReplicaState | None
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic]
    rack_id: str
    def __init__(
        self,
        *,
        cluster_id: str | None = ...,
        replica_id: int = ...,
        replica_state: ReplicaState | None = ...,
        max_wait_ms: int = ...,
        min_bytes: int = ...,
        max_bytes: int = ...,
        isolation_level: int = ...,
        session_id: int = ...,
        session_epoch: int = ...,
        topics: list[FetchTopic] = ...,
        forgotten_topics_data: list[ForgottenTopic] = ...,
        rack_id: str = ...,
    ) -> None: ...

class EpochEndOffset(Value):
    epoch: int
    end_offset: int
    def __init__(self, *, epoch: int = ..., end_offset: int = ...) -> None: ...

class LeaderIdAndEpoch(Value):
    leader_id: int
    leader_epoch: int
    def __init__(self, *, leader_id: int = ..., leader_epoch: int = ...) -> None: ...

class SnapshotId(Value):
    end_offset: int
    epoch: int
    def __init__(self, *, end_offset: int = ..., epoch: int = ...) -> None: ...

class AbortedTransaction(Value):
    producer_id: int
    first_offset: int
    def __init__(self, *, producer_id: int = ..., first_offset: int = ...) -> None: ...

class PartitionData(Value):
    partition_index: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    diverging_epoch: EpochEndOffset | None
    current_leader: LeaderIdAndEpoch | None
    snapshot_id: SnapshotId | None
    aborted_transactions: list[AbortedTransaction] | None
    preferred_read_replica: int
    @property
    def records(self) -> memoryview | None: ...
    @records.setter
    def records(self, value: Buffer | Sequence[Sized] | None) -> None: ...
    def __init__(
        self,
        *,
        partition_index: int = ...,
        error_code: int = ...,
        high_watermark: int = ...,
        last_stable_offset: int = ...,
        log_start_offset: int = ...,
        diverging_epoch: EpochEndOffset | None = ...,
        current_leader: LeaderIdAndEpoch | None = ...,
        snapshot_id: SnapshotId | None = ...,
        aborted_transactions: list[AbortedTransaction] | None = ...,
        preferred_read_replica: int = ...,
        records: Buffer | Sequence[Sized] | None = ...,
    ) -> None: ...

class FetchableTopicResponse(Value):
    topic: str
    topic_id: bytes
    partitions: list[PartitionData]
    def __init__(self, *, topic: str = ..., topic_id: bytes = ..., partitions: list[PartitionData] = ...) -> None: ...

class NodeEndpoint(Value):
    node_id: int
    host: str
    port: int
    rack: str | None
    def __init__(self, *, node_id: int = ..., host: str = ..., port: int = ..., rack: str | None = ...) -> None: ...

class FetchResponse(ResponseValue):
    throttle_time_ms: int
    error_code: int
    session_id: int
    responses: list[FetchableTopicResponse]
    node_endpoints: list[NodeEndpoint]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        session_id: int = ...,
        responses: list[FetchableTopicResponse] = ...,
        node_endpoints: list[NodeEndpoint] = ...,
    ) -> None: ...
