"""CreateTopics (19): new topics with partitions and settings.

v1 brings validateOnly, v4 broker defaults (KIP-464), v5 the settings in the answer (KIP-525), v7 topic ids. Tag 1000 is
fencepost's (docs/decisions/0034-a-plan-at-once.md): a plan in a request that names no topics; Kafka skips it.
"""

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.schema import Bool, Int8, Int16, Int32, RequestValue, ResponseValue, String, Uuid, Value, since


class CreatableReplicaAssignment(Value):
    partition_index: Int32 = 0
    broker_ids: list[Int32] = []


class CreatableTopicConfig(Value):
    name: String = ""
    value: String | None = ""


class CreatableTopic(Value):
    name: String = ""
    num_partitions: Int32 = 0
    replication_factor: Int16 = 0
    assignments: list[CreatableReplicaAssignment] = []
    configs: list[CreatableTopicConfig] = []


class PlannedSetting(Value):
    name: String = ""
    value: String | None = ""


class PlannedTopic(Value):
    name: String = ""
    partitions: Int32 = -1
    replication_factor: Int16 = -1
    absent: Bool = False
    settings: list[PlannedSetting] = []


class PlannedResource(Value):
    resource_type: Int8 = 0
    resource_name: String = ""
    settings: list[PlannedSetting] = []


class PlannedAcl(Value):
    resource_type: Int8 = 0
    resource_name: String = ""
    pattern_type: Int8 = 0
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0
    absent: Bool = False


class Plan(Value):
    topics: list[PlannedTopic] = []
    resources: list[PlannedResource] = []
    acls: list[PlannedAcl] = []


class CreateTopicsRequest(RequestValue["CreateTopicsResponse"], api=ApiKey.CREATE_TOPICS):
    topics: list[CreatableTopic] = []
    timeout_ms: Int32 = 60000
    validate_only: Bool = since(1)
    plan: Plan | None = since(5, tag=1000)


class CreatableTopicConfigs(Value):
    name: String = since(5)
    value: String | None = since(5, default="")
    read_only: Bool = since(5)
    config_source: Int8 = since(5, default=-1)
    is_sensitive: Bool = since(5)


class CreatableTopicResult(Value):
    name: String = ""
    topic_id: Uuid = since(7)
    error_code: Int16 = 0
    error_message: String | None = since(1, default="")
    topic_config_error_code: Int16 = since(5, tag=0)
    num_partitions: Int32 = since(5, default=-1)
    replication_factor: Int16 = since(5, default=-1)
    configs: list[CreatableTopicConfigs] | None = since(5, default=[])


class PlanChange(Value):
    action: String = ""
    kind: String = ""
    name: String = ""
    setting: String = ""
    before: String | None = ""
    after: String | None = ""


class PlanProblem(Value):
    kind: String = ""
    name: String = ""
    error_code: Int16 = 0
    error_message: String | None = ""


class PlanOutcome(Value):
    changes: list[PlanChange] = []
    problems: list[PlanProblem] = []


class CreateTopicsResponse(ResponseValue, api=ApiKey.CREATE_TOPICS):
    throttle_time_ms: Int32 = since(2)
    topics: list[CreatableTopicResult] = []
    plan: PlanOutcome | None = since(5, tag=1000)
