"""Decides on changes of configurations: replaced (AlterConfigs) or edited (IncrementalAlterConfigs). Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence

from fencepost.coordinator.decision import Decision
from fencepost.coordinator.metadata.commands import DONE, ConfigEdit, ConfigEdits, Outcome
from fencepost.coordinator.metadata.image import NOTHING, ConfigResource, MetadataImage
from fencepost.coordinator.metadata.ports import ClusterFacts, ConfigRules
from fencepost.coordinator.metadata.topic_names import topic_name_problem
from fencepost.protocol.admin_enums import ConfigOperation, ConfigResourceType
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.metadata_record_types import ConfigRecord, MetadataRecord

TWICE = Outcome(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
Configs = Decision[MetadataRecord, list[Outcome], None]


class ConfigController:
    """The rules of kafka-rules D2."""

    def __init__(self, facts: ClusterFacts, rules: ConfigRules) -> None:
        self._facts = facts
        self._rules = rules

    def alter(self, image: MetadataImage, changes: Sequence[ConfigEdits], validate_only: bool = False) -> Configs:
        """Decide on each resource separately, all or nothing within one; one outcome per resource, in their order."""
        counts = Counter((change.resource_type, change.resource_name) for change in changes)
        records: list[MetadataRecord] = []
        outcomes: list[Outcome] = []
        for change in changes:
            if counts[change.resource_type, change.resource_name] > 1:
                outcomes.append(TWICE)
                continue
            decided = self._alter_one(image, change)
            if isinstance(decided, Outcome):
                outcomes.append(decided)
            elif len(records) + len(decided) > self._facts.change_records_max:
                outcomes.append(
                    Outcome(ErrorCode.POLICY_VIOLATION, "The request needs more metadata records than it may have")
                )
            else:
                records += decided
                outcomes.append(DONE)
        return Decision(outcomes, () if validate_only else tuple(records))

    def _alter_one(self, image: MetadataImage, change: ConfigEdits) -> list[MetadataRecord] | Outcome:
        resource = self._resource(image, change)
        if isinstance(resource, Outcome):
            return resource
        problem = _edits_problem(change.edits)
        if problem is not None:
            return problem
        before = image.configs.get(resource, NOTHING)
        after = {} if change.replace_all else dict(before)
        for edit in change.edits:
            value = self._edited(image, resource, edit, after.get(edit.name))
            if isinstance(value, Outcome):
                return value
            if value is None:
                after.pop(edit.name, None)
            else:
                after[edit.name] = value
        unset = {edit.name for edit in change.edits if edit.name not in after}
        problem = self._set_problem(resource, after, unset)
        if problem is not None:
            return problem
        altered = [name for name in {**before, **after} if before.get(name) != after.get(name)]
        return [ConfigRecord(resource.type, resource.name, name, after.get(name)) for name in altered]

    def _resource(self, image: MetadataImage, change: ConfigEdits) -> ConfigResource | Outcome:
        name = change.resource_name
        match change.resource_type:
            case ConfigResourceType.TOPIC:
                problem = topic_name_problem(name)
                if problem is not None:
                    return Outcome(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
                if name not in image.topics_by_name:
                    return Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
                return ConfigResource(ConfigResourceType.TOPIC, name)
            case ConfigResourceType.BROKER:
                if name and name != str(self._facts.node_id) and name not in map(str, image.brokers):
                    return Outcome(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No broker with id {name} found.")
                return ConfigResource(ConfigResourceType.BROKER, name)
            case ConfigResourceType.GROUP:
                if not name:
                    return Outcome(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
                return ConfigResource(ConfigResourceType.GROUP, name)
            case ConfigResourceType.CLIENT_METRICS:
                if not name:
                    return Outcome(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
                return ConfigResource(ConfigResourceType.CLIENT_METRICS, name)
            case other:
                return Outcome(ErrorCode.INVALID_REQUEST, f"Unknown resource type {other}")

    def _edited(
        self, image: MetadataImage, resource: ConfigResource, edit: ConfigEdit, current: str | None
    ) -> str | Outcome | None:
        """The value after one edit; None if the edit deletes it."""
        operation = ConfigOperation(edit.operation)
        if operation is ConfigOperation.DELETE:
            return None
        assert edit.value is not None, "_edits_problem refuses it"
        if operation is ConfigOperation.SET:
            return edit.value
        if not self._rules.is_list(resource.type, edit.name):
            why = f"Can't {operation.name} to key {edit.name} because its type is not LIST."
            if resource.type is ConfigResourceType.BROKER:
                why = f"Config value {operation.name.lower()} is not allowed for config key: {edit.name}"
            return Outcome(ErrorCode.INVALID_CONFIG, why)
        start = current if current is not None else self._rules.default_text(image, resource.type, edit.name)
        members = [member for member in (start or "").split(",") if member]
        for member in edit.value.split(","):
            if operation is ConfigOperation.APPEND and member not in members:
                members.append(member)
            elif operation is ConfigOperation.SUBTRACT and member in members:
                members.remove(member)
        return ",".join(members)

    def _set_problem(self, resource: ConfigResource, configs: Mapping[str, str], unset: set[str]) -> Outcome | None:
        if resource.type is ConfigResourceType.TOPIC:
            problem, code = self._rules.topic_problem(configs), ErrorCode.INVALID_CONFIG
        elif resource.type is ConfigResourceType.CLIENT_METRICS:
            return self._rules.client_metrics_problem(configs)
        elif resource.type is ConfigResourceType.GROUP:
            problem, code = self._rules.group_problem(configs), ErrorCode.INVALID_CONFIG
        else:  # Kafka answers INVALID_REQUEST here and knows that it should not (KAFKA-13609)
            changed = {**dict.fromkeys(unset), **configs}
            problem, code = self._rules.broker_problem(resource.name, changed), ErrorCode.INVALID_REQUEST
        return None if problem is None else Outcome(code, problem)


def broker_name_problem(name: str, node_id: int) -> Outcome | None:
    """Why a broker resource's name is invalid, or None: it is empty (all brokers) or this broker's id."""
    if not name or name == str(node_id):
        return None
    if not (name.isascii() and name.lstrip("-").isdigit()):
        return Outcome(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
    return Outcome(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {node_id}, but received {name}")


def _edits_problem(edits: Sequence[ConfigEdit]) -> Outcome | None:
    if len({edit.name for edit in edits}) < len(edits):
        return Outcome(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    for edit in edits:
        if edit.operation not in list(ConfigOperation):
            return Outcome(ErrorCode.INVALID_REQUEST, f"Unknown operations type {edit.operation}")
    nulls = [edit.name for edit in edits if edit.value is None and edit.operation != ConfigOperation.DELETE]
    if nulls:
        return Outcome(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}")
    return None
