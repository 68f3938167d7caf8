"""Written by tests/architecture/message_stubs.py from the declarations in api68_consumer_group_heartbeat.py."""

from fencepost.protocol.schema import RequestValue, ResponseValue, Value

class TopicPartitions(Value):
    topic_id: bytes
    partitions: list[int]
    def __init__(self, *, topic_id: bytes = ..., partitions: list[int] = ...) -> None: ...

class ConsumerGroupHeartbeatRequest(RequestValue[ConsumerGroupHeartbeatResponse]):
    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    subscribed_topic_names: list[str] | None
    subscribed_topic_regex: str | None
    server_assignor: str | None
    topic_partitions: list[TopicPartitions] | None
    def __init__(
        self,
        *,
        group_id: str = ...,
        member_id: str = ...,
        member_epoch: int = ...,
        instance_id: str | None = ...,
        rack_id: str | None = ...,
        rebalance_timeout_ms: int = ...,
        subscribed_topic_names: list[str] | None = ...,
        subscribed_topic_regex: str | None = ...,
        server_assignor: str | None = ...,
        topic_partitions: list[TopicPartitions] | None = ...,
    ) -> None: ...

class Assignment(Value):
    topic_partitions: list[TopicPartitions]
    def __init__(self, *, topic_partitions: list[TopicPartitions] = ...) -> None: ...

class ConsumerGroupHeartbeatResponse(ResponseValue):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    member_id: str | None
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: Assignment | None
    def __init__(
        self,
        *,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        member_id: str | None = ...,
        member_epoch: int = ...,
        heartbeat_interval_ms: int = ...,
        assignment: Assignment | None = ...,
    ) -> None: ...
