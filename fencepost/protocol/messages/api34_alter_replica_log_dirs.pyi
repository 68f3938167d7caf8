"""Written by tests/architecture/message_stubs.py from the declarations in api34_alter_replica_log_dirs.py."""

from fencepost.protocol.schema import RequestValue, ResponseValue, Value

class AlterReplicaLogDirTopic(Value):
    name: str
    partitions: list[int]
    def __init__(self, *, name: str = ..., partitions: list[int] = ...) -> None: ...

class AlterReplicaLogDir(Value):
    path: str
    topics: list[AlterReplicaLogDirTopic]
    def __init__(self, *, path: str = ..., topics: list[AlterReplicaLogDirTopic] = ...) -> None: ...

class AlterReplicaLogDirsRequest(RequestValue[AlterReplicaLogDirsResponse]):
    dirs: list[AlterReplicaLogDir]
    def __init__(self, *, dirs: list[AlterReplicaLogDir] = ...) -> None: ...

class AlterReplicaLogDirPartitionResult(Value):
    partition_index: int
    error_code: int
    def __init__(self, *, partition_index: int = ..., error_code: int = ...) -> None: ...

class AlterReplicaLogDirTopicResult(Value):
    topic_name: str
    partitions: list[AlterReplicaLogDirPartitionResult]
    def __init__(self, *, topic_name: str = ..., partitions: list[AlterReplicaLogDirPartitionResult] = ...) -> None: ...

class AlterReplicaLogDirsResponse(ResponseValue):
    throttle_time_ms: int
    results: list[AlterReplicaLogDirTopicResult]
    def __init__(self, *, throttle_time_ms: int = ..., results: list[AlterReplicaLogDirTopicResult] = ...) -> None: ...
