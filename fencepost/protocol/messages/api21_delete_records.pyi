"""Written by tests/architecture/message_stubs.py from the declarations in api21_delete_records.py."""

from fencepost.protocol.schema import RequestValue, ResponseValue, Value

class DeleteRecordsPartition(Value):
    partition_index: int
    offset: int
    def __init__(self, *, partition_index: int = ..., offset: int = ...) -> None: ...

class DeleteRecordsTopic(Value):
    name: str
    partitions: list[DeleteRecordsPartition]
    def __init__(self, *, name: str = ..., partitions: list[DeleteRecordsPartition] = ...) -> None: ...

class DeleteRecordsRequest(RequestValue[DeleteRecordsResponse]):
    topics: list[DeleteRecordsTopic]
    timeout_ms: int
    def __init__(self, *, topics: list[DeleteRecordsTopic] = ..., timeout_ms: int = ...) -> None: ...

class DeleteRecordsPartitionResult(Value):
    partition_index: int
    low_watermark: int
    error_code: int
    def __init__(self, *, partition_index: int = ..., low_watermark: int = ..., error_code: int = ...) -> None: ...

class DeleteRecordsTopicResult(Value):
    name: str
    partitions: list[DeleteRecordsPartitionResult]
    def __init__(self, *, name: str = ..., partitions: list[DeleteRecordsPartitionResult] = ...) -> None: ...

class DeleteRecordsResponse(ResponseValue):
    throttle_time_ms: int
    topics: list[DeleteRecordsTopicResult]
    def __init__(self, *, throttle_time_ms: int = ..., topics: list[DeleteRecordsTopicResult] = ...) -> None: ...
