"""Written by tests/architecture/message_stubs.py from the declarations in api69_consumer_group_describe.py."""

from fencepost.protocol.schema import RequestValue, ResponseValue, Value

class ConsumerGroupDescribeRequest(RequestValue[ConsumerGroupDescribeResponse]):
    group_ids: list[str]
    include_authorized_operations: bool
    def __init__(self, *, group_ids: list[str] = ..., include_authorized_operations: bool = ...) -> None: ...

class TopicPartitions(Value):
    topic_id: bytes
    topic_name: str
    partitions: list[int]
    def __init__(self, *, topic_id: bytes = ..., topic_name: str = ..., partitions: list[int] = ...) -> None: ...

class Assignment(Value):
    topic_partitions: list[TopicPartitions]
    def __init__(self, *, topic_partitions: list[TopicPartitions] = ...) -> None: ...

class Member(Value):
    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]
    subscribed_topic_regex: str | None
    assignment: Assignment
    target_assignment: Assignment
    member_type: int
    def __init__(
        self,
        *,
        member_id: str = ...,
        instance_id: str | None = ...,
        rack_id: str | None = ...,
        member_epoch: int = ...,
        client_id: str = ...,
        client_host: str = ...,
        subscribed_topic_names: list[str] = ...,
        subscribed_topic_regex: str | None = ...,
        assignment: Assignment = ...,
        target_assignment: Assignment = ...,
        member_type: int = ...,
    ) -> None: ...

class DescribedGroup(Value):
    error_code: int
    error_message: str | None
    group_id: str
    group_state: str
    group_epoch: int
    assignment_epoch: int
    assignor_name: str
    members: list[Member]
    authorized_operations: int
    def __init__(
        self,
        *,
        error_code: int = ...,
        error_message: str | None = ...,
        group_id: str = ...,
        group_state: str = ...,
        group_epoch: int = ...,
        assignment_epoch: int = ...,
        assignor_name: str = ...,
        members: list[Member] = ...,
        authorized_operations: int = ...,
    ) -> None: ...

class ConsumerGroupDescribeResponse(ResponseValue):
    throttle_time_ms: int
    groups: list[DescribedGroup]
    def __init__(self, *, throttle_time_ms: int = ..., groups: list[DescribedGroup] = ...) -> None: ...
