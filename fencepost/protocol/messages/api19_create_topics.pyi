"""Written by tests/architecture/message_stubs.py from the declarations in api19_create_topics.py."""

from fencepost.protocol.schema import RequestValue, ResponseValue, Value

class CreatableReplicaAssignment(Value):
    partition_index: int
    broker_ids: list[int]
    def __init__(self, *, partition_index: int = ..., broker_ids: list[int] = ...) -> None: ...

class CreatableTopicConfig(Value):
    name: str
    value: str | None
    def __init__(self, *, name: str = ..., value: str | None = ...) -> None: ...

class CreatableTopic(Value):
    name: str
    num_partitions: int
    replication_factor: int
    assignments: list[CreatableReplicaAssignment]
    configs: list[CreatableTopicConfig]
    def __init__(
        self,
        *,
        name: str = ...,
        num_partitions: int = ...,
        replication_factor: int = ...,
        assignments: list[CreatableReplicaAssignment] = ...,
        configs: list[CreatableTopicConfig] = ...,
    ) -> None: ...

class PlannedSetting(Value):
    name: str
    value: str | None
    def __init__(self, *, name: str = ..., value: str | None = ...) -> None: ...

class PlannedTopic(Value):
    name: str
    partitions: int
    replication_factor: int
    absent: bool
    settings: list[PlannedSetting]
    def __init__(
        self,
        *,
        name: str = ...,
        partitions: int = ...,
        replication_factor: int = ...,
        absent: bool = ...,
        settings: list[PlannedSetting] = ...,
    ) -> None: ...

class PlannedResource(Value):
    resource_type: int
    resource_name: str
    settings: list[PlannedSetting]
    def __init__(
        self, *, resource_type: int = ..., resource_name: str = ..., settings: list[PlannedSetting] = ...
    ) -> None: ...

class PlannedAcl(Value):
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int
    absent: bool
    def __init__(
        self,
        *,
        resource_type: int = ...,
        resource_name: str = ...,
        pattern_type: int = ...,
        principal: str = ...,
        host: str = ...,
        operation: int = ...,
        permission_type: int = ...,
        absent: bool = ...,
    ) -> None: ...

class Plan(Value):
    topics: list[PlannedTopic]
    resources: list[PlannedResource]
    acls: list[PlannedAcl]
    def __init__(
        self, *, topics: list[PlannedTopic] = ..., resources: list[PlannedResource] = ..., acls: list[PlannedAcl] = ...
    ) -> None: ...

class CreateTopicsRequest(RequestValue[CreateTopicsResponse]):
    topics: list[CreatableTopic]
    timeout_ms: int
    validate_only: bool
    plan: Plan | None
    def __init__(
        self,
        *,
        topics: list[CreatableTopic] = ...,
        timeout_ms: int = ...,
        validate_only: bool = ...,
        plan: Plan | None = ...,
    ) -> None: ...

class CreatableTopicConfigs(Value):
    name: str
    value: str | None
    read_only: bool
    config_source: int
    is_sensitive: bool
    def __init__(
        self,
        *,
        name: str = ...,
        value: str | None = ...,
        read_only: bool = ...,
        config_source: int = ...,
        is_sensitive: bool = ...,
    ) -> None: ...

class CreatableTopicResult(Value):
    name: str
    topic_id: bytes
    error_code: int
    error_message: str | None
    topic_config_error_code: int
    num_partitions: int
    replication_factor: int
    configs: list[CreatableTopicConfigs] | None
    def __init__(
        self,
        *,
        name: str = ...,
        topic_id: bytes = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        topic_config_error_code: int = ...,
        num_partitions: int = ...,
        replication_factor: int = ...,
        configs: list[CreatableTopicConfigs] | None = ...,
    ) -> None: ...

class PlanChange(Value):
    action: str
    kind: str
    name: str
    setting: str
    before: str | None
    after: str | None
    def __init__(
        self,
        *,
        action: str = ...,
        kind: str = ...,
        name: str = ...,
        setting: str = ...,
        before: str | None = ...,
        after: str | None = ...,
    ) -> None: ...

class PlanProblem(Value):
    kind: str
    name: str
    error_code: int
    error_message: str | None
    def __init__(
        self, *, kind: str = ..., name: str = ..., error_code: int = ..., error_message: str | None = ...
    ) -> None: ...

class PlanOutcome(Value):
    changes: list[PlanChange]
    problems: list[PlanProblem]
    def __init__(self, *, changes: list[PlanChange] = ..., problems: list[PlanProblem] = ...) -> None: ...

class CreateTopicsResponse(ResponseValue):
    throttle_time_ms: int
    topics: list[CreatableTopicResult]
    plan: PlanOutcome | None
    def __init__(
        self, *, throttle_time_ms: int = ..., topics: list[CreatableTopicResult] = ..., plan: PlanOutcome | None = ...
    ) -> None: ...
