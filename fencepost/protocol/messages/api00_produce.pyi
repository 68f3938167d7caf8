"""Written by tests/architecture/message_stubs.py from the declarations in api00_produce.py."""

from collections.abc import Sequence, Sized

from fencepost.protocol.schema import Buffer, RequestValue, ResponseValue, Value

class PartitionProduceData(Value):
    index: int
    @property
    def records(self) -> memoryview | None: ...
    @records.setter
    def records(self, value: Buffer | Sequence[Sized] | None) -> None: ...
    def __init__(self, *, index: int = ..., records: Buffer | Sequence[Sized] | None = ...) -> None: ...

class TopicProduceData(Value):
    name: str
    topic_id: bytes
    partition_data: list[PartitionProduceData]
    def __init__(
        self, *, name: str = ..., topic_id: bytes = ..., partition_data: list[PartitionProduceData] = ...
    ) -> None: ...

class ProduceRequest(RequestValue[ProduceResponse]):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topic_data: list[TopicProduceData]
    def __init__(
        self,
        *,
        transactional_id: str | None = ...,
        acks: int = ...,
        timeout_ms: int = ...,
        topic_data: list[TopicProduceData] = ...,
    ) -> None: ...

class BatchIndexAndErrorMessage(Value):
    batch_index: int
    batch_index_error_message: str | None
    def __init__(self, *, batch_index: int = ..., batch_index_error_message: str | None = ...) -> None: ...

class LeaderIdAndEpoch(Value):
    leader_id: int
    leader_epoch: int
    def __init__(self, *, leader_id: int = ..., leader_epoch: int = ...) -> None: ...

class PartitionProduceResponse(Value):
    index: int
    error_code: int
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    record_errors: list[BatchIndexAndErrorMessage]
    error_message: str | None
    current_leader: LeaderIdAndEpoch | None
    def __init__(
        self,
        *,
        index: int = ...,
        error_code: int = ...,
        base_offset: int = ...,
        log_append_time_ms: int = ...,
        log_start_offset: int = ...,
        record_errors: list[BatchIndexAndErrorMessage] = ...,
        error_message: str | None = ...,
        current_leader: LeaderIdAndEpoch | None = ...,
    ) -> None: ...

class TopicProduceResponse(Value):
    name: str
    topic_id: bytes
    partition_responses: list[PartitionProduceResponse]
    def __init__(
        self, *, name: str = ..., topic_id: bytes = ..., partition_responses: list[PartitionProduceResponse] = ...
    ) -> None: ...

class NodeEndpoint(Value):
    node_id: int
    host: str
    port: int
    rack: str | None
    def __init__(self, *, node_id: int = ..., host: str = ..., port: int = ..., rack: str | None = ...) -> None: ...

class ProduceResponse(ResponseValue):
    responses: list[TopicProduceResponse]
    throttle_time_ms: int
    node_endpoints: list[NodeEndpoint]
    def __init__(
        self,
        *,
        responses: list[TopicProduceResponse] = ...,
        throttle_time_ms: int = ...,
        node_endpoints: list[NodeEndpoint] = ...,
    ) -> None: ...
