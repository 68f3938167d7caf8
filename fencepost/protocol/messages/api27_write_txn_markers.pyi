"""Written by tests/architecture/message_stubs.py from the declarations in api27_write_txn_markers.py."""

from fencepost.protocol.schema import RequestValue, ResponseValue, Value

class WritableTxnMarkerTopic(Value):
    name: str
    partition_indexes: list[int]
    def __init__(self, *, name: str = ..., partition_indexes: list[int] = ...) -> None: ...

class WritableTxnMarker(Value):
    producer_id: int
    producer_epoch: int
    transaction_result: bool
    topics: list[WritableTxnMarkerTopic]
    coordinator_epoch: int
    transaction_version: int
    only_hanging: bool
    def __init__(
        self,
        *,
        producer_id: int = ...,
        producer_epoch: int = ...,
        transaction_result: bool = ...,
        topics: list[WritableTxnMarkerTopic] = ...,
        coordinator_epoch: int = ...,
        transaction_version: int = ...,
        only_hanging: bool = ...,
    ) -> None: ...

class WriteTxnMarkersRequest(RequestValue[WriteTxnMarkersResponse]):
    markers: list[WritableTxnMarker]
    def __init__(self, *, markers: list[WritableTxnMarker] = ...) -> None: ...

class WritableTxnMarkerPartitionResult(Value):
    partition_index: int
    error_code: int
    def __init__(self, *, partition_index: int = ..., error_code: int = ...) -> None: ...

class WritableTxnMarkerTopicResult(Value):
    name: str
    partitions: list[WritableTxnMarkerPartitionResult]
    def __init__(self, *, name: str = ..., partitions: list[WritableTxnMarkerPartitionResult] = ...) -> None: ...

class WritableTxnMarkerResult(Value):
    producer_id: int
    topics: list[WritableTxnMarkerTopicResult]
    def __init__(self, *, producer_id: int = ..., topics: list[WritableTxnMarkerTopicResult] = ...) -> None: ...

class WriteTxnMarkersResponse(ResponseValue):
    markers: list[WritableTxnMarkerResult]
    def __init__(self, *, markers: list[WritableTxnMarkerResult] = ...) -> None: ...
