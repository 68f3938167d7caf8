"""Written by tests/architecture/message_stubs.py from the declarations in api24_add_partitions_to_txn.py."""

from fencepost.protocol.schema import RequestValue, ResponseValue, Value

class AddPartitionsToTxnTopic(Value):
    name: str
    partitions: list[int]
    def __init__(self, *, name: str = ..., partitions: list[int] = ...) -> None: ...

class AddPartitionsToTxnTransaction(Value):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    verify_only: bool
    topics: list[AddPartitionsToTxnTopic]
    def __init__(
        self,
        *,
        transactional_id: str = ...,
        producer_id: int = ...,
        producer_epoch: int = ...,
        verify_only: bool = ...,
        topics: list[AddPartitionsToTxnTopic] = ...,
    ) -> None: ...

class AddPartitionsToTxnRequest(RequestValue[AddPartitionsToTxnResponse]):
    transactions: list[AddPartitionsToTxnTransaction]
    v3_and_below_transactional_id: str
    v3_and_below_producer_id: int
    v3_and_below_producer_epoch: int
    v3_and_below_topics: list[AddPartitionsToTxnTopic]
    def __init__(
        self,
        *,
        transactions: list[AddPartitionsToTxnTransaction] = ...,
        v3_and_below_transactional_id: str = ...,
        v3_and_below_producer_id: int = ...,
        v3_and_below_producer_epoch: int = ...,
        v3_and_below_topics: list[AddPartitionsToTxnTopic] = ...,
    ) -> None: ...

class AddPartitionsToTxnPartitionResult(Value):
    partition_index: int
    partition_error_code: int
    def __init__(self, *, partition_index: int = ..., partition_error_code: int = ...) -> None: ...

class AddPartitionsToTxnTopicResult(Value):
    name: str
    results_by_partition: list[AddPartitionsToTxnPartitionResult]
    def __init__(
        self, *, name: str = ..., results_by_partition: list[AddPartitionsToTxnPartitionResult] = ...
    ) -> None: ...

class AddPartitionsToTxnResult(Value):
    transactional_id: str
    topic_results: list[AddPartitionsToTxnTopicResult]
    def __init__(
        self, *, transactional_id: str = ..., topic_results: list[AddPartitionsToTxnTopicResult] = ...
    ) -> None: ...

class AddPartitionsToTxnResponse(ResponseValue):
    throttle_time_ms: int
    error_code: int
    results_by_transaction: list[AddPartitionsToTxnResult]
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult]
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        results_by_transaction: list[AddPartitionsToTxnResult] = ...,
        results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = ...,
    ) -> None: ...
