"""Written by tests/architecture/message_stubs.py from the declarations in api28_txn_offset_commit.py."""

from fencepost.protocol.schema import RequestValue, ResponseValue, Value

class TxnOffsetCommitRequestPartition(Value):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None
    def __init__(
        self,
        *,
        partition_index: int = ...,
        committed_offset: int = ...,
        committed_leader_epoch: int = ...,
        committed_metadata: str | None = ...,
    ) -> None: ...

class TxnOffsetCommitRequestTopic(Value):
    name: str
    topic_id: bytes
    partitions: list[TxnOffsetCommitRequestPartition]
    def __init__(
        self, *, name: str = ..., topic_id: bytes = ..., partitions: list[TxnOffsetCommitRequestPartition] = ...
    ) -> None: ...

class TxnOffsetCommitRequest(RequestValue[TxnOffsetCommitResponse]):
    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    generation_id_or_member_epoch: int
    member_id: str
    group_instance_id: str | None
    topics: list[TxnOffsetCommitRequestTopic]
    def __init__(
        self,
        *,
        transactional_id: str = ...,
        group_id: str = ...,
        producer_id: int = ...,
        producer_epoch: int = ...,
        generation_id_or_member_epoch: int = ...,
        member_id: str = ...,
        group_instance_id: str | None = ...,
        topics: list[TxnOffsetCommitRequestTopic] = ...,
    ) -> None: ...

class TxnOffsetCommitResponsePartition(Value):
    partition_index: int
    error_code: int
    def __init__(self, *, partition_index: int = ..., error_code: int = ...) -> None: ...

class TxnOffsetCommitResponseTopic(Value):
    name: str
    topic_id: bytes
    partitions: list[TxnOffsetCommitResponsePartition]
    def __init__(
        self, *, name: str = ..., topic_id: bytes = ..., partitions: list[TxnOffsetCommitResponsePartition] = ...
    ) -> None: ...

class TxnOffsetCommitResponse(ResponseValue):
    throttle_time_ms: int
    topics: list[TxnOffsetCommitResponseTopic]
    def __init__(self, *, throttle_time_ms: int = ..., topics: list[TxnOffsetCommitResponseTopic] = ...) -> None: ...
