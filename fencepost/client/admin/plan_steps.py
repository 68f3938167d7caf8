"""Applies a plan to a Kafka without plans: finds the differences, validates them, and makes one change at a time."""

from collections import Counter
from collections.abc import Awaitable, Collection, Mapping
from typing import Final

from fencepost.client.admin.item_errors import ItemsFailedError
from fencepost.client.admin.parts import AdminParts
from fencepost.client.admin.plan_types import (
    Applied,
    ClusterPlan,
    PlannedChange,
    WantedConfigs,
    WantedTopic,
    own_source,
    shown_rule,
    subject_of,
)
from fencepost.client.admin.security_types import Acl, AclFilter
from fencepost.client.admin.topics import NO_TOPIC
from fencepost.client.admin.types import HIDDEN, ConfigEntry, TopicDescription, is_secret
from fencepost.client.errors import KafkaError, RetriableError
from fencepost.protocol.admin_enums import ConfigSource
from fencepost.protocol.errors import ErrorCode

STEP_BY_STEP: Final = "applying a plan step by step"
PARTITIONS: Final = "partitions"


class _Step:
    """One request, its subject, and its changes."""

    def __init__(self, subject: str, changes: list[PlannedChange]) -> None:
        self.subject = subject
        self.changes = changes

    def run(self, admin: AdminParts, validate_only: bool) -> Awaitable[object]:
        raise NotImplementedError


class _Creation(_Step):
    def __init__(self, topic: WantedTopic) -> None:
        count = str(topic.partitions) if topic.partitions > 0 else "default"
        changes = [PlannedChange("create", "topic", topic.name, PARTITIONS, None, count)]
        changes += _differences("topic", topic.name, {}, topic.configs)
        super().__init__(f"topic {topic.name}", changes)
        self._topic = topic

    def run(self, admin: AdminParts, validate_only: bool) -> Awaitable[object]:
        one = self._topic
        configs = {name: value for name, value in one.configs.items() if value is not None}
        return admin.topics.create_topics(
            one.name,
            one.partitions,
            replication_factor=one.replication_factor,
            configs=configs,
            validate_only=validate_only,
        )


class _Growth(_Step):
    def __init__(self, name: str, before: int, after: int) -> None:
        super().__init__(f"topic {name}", [PlannedChange("change", "topic", name, PARTITIONS, str(before), str(after))])
        self._name, self._after = name, after

    def run(self, admin: AdminParts, validate_only: bool) -> Awaitable[object]:
        return admin.topics.create_partitions(self._name, self._after, validate_only=validate_only)


class _Settings(_Step):
    def __init__(self, wanted: WantedConfigs, changes: list[PlannedChange]) -> None:
        super().__init__(f"{wanted.kind} {wanted.name or 'all'}", changes)
        self._subject = subject_of(wanted.kind, wanted.name)
        self._values = {change.setting: wanted.configs[change.setting] for change in changes}

    def run(self, admin: AdminParts, validate_only: bool) -> Awaitable[object]:
        return admin.configs.incremental_alter_configs(self._values, validate_only=validate_only, **self._subject)


class _Rule(_Step):
    def __init__(self, rule: Acl, absent: bool) -> None:
        shown = shown_rule(rule)
        before, after = (shown, None) if absent else (None, shown)
        action = "delete" if absent else "create"
        super().__init__(f"acl {shown}", [PlannedChange(action, "acl", shown, "", before, after)])
        self._rule, self._absent = rule, absent

    async def run(self, admin: AdminParts, validate_only: bool) -> None:
        if validate_only:
            return  # Kafka has no way to check a rule
        if self._absent:
            await admin.security.delete_acls(AclFilter(*self._rule))
        else:
            await admin.security.create_acls(self._rule)


class _Removal(_Step):
    def __init__(self, name: str, count: int) -> None:
        super().__init__(f"topic {name}", [PlannedChange("delete", "topic", name, PARTITIONS, str(count), None)])
        self._name = name

    async def run(self, admin: AdminParts, validate_only: bool) -> None:
        if not validate_only:  # Kafka has no way to check a deletion
            await admin.topics.delete_topics(self._name, if_exists=True)


async def apply_by_steps(admin: AdminParts, plan: ClusterPlan, validate_only: bool) -> Applied:
    """Validate all steps, then make them. Raises ItemsFailedError; its results are the steps that were made."""
    steps = await _steps(admin, plan)
    await _run(admin, steps, validate_only=True)
    if not validate_only:
        await _run(admin, steps, validate_only=False)
    return Applied(tuple(change for step in steps for change in step.changes), atomic=False)


async def _run(admin: AdminParts, steps: list[_Step], *, validate_only: bool) -> None:
    """All steps; validation continues after a failure, changes stop at the first one."""
    errors: dict[str, KafkaError] = {}
    done: dict[str, tuple[PlannedChange, ...]] = {}
    for step in steps:
        try:
            await step.run(admin, validate_only)
        except KafkaError as error:
            found = list(error.errors.values()) if isinstance(error, ItemsFailedError) else [error]
            errors[step.subject] = found[0] if len(found) == 1 else error
            if not validate_only:
                break
            continue
        if not validate_only:
            done[step.subject] = (*done.get(step.subject, ()), *step.changes)
    if errors:
        raise ItemsFailedError(STEP_BY_STEP, errors, done)


async def _steps(admin: AdminParts, plan: ClusterPlan) -> list[_Step]:
    """The steps: additions first, deletions last. Raises ItemsFailedError for differences that no step can change."""
    torn = _torn(plan)
    if torn:
        raise ItemsFailedError(STEP_BY_STEP, torn)
    there = await _there(admin, [one.name for one in plan.topics])
    steps: list[_Step] = []
    last: list[_Step] = []
    errors: dict[str, KafkaError] = {}
    for one in plan.topics:
        found = there.get(one.name)
        if one.absent:
            last += [] if found is None else [_Removal(one.name, len(found.partitions))]
        elif found is None:
            steps.append(_Creation(one))
        else:
            problem = _impossible(one, found)
            if problem is not None:
                errors[f"topic {one.name}"] = problem
            elif one.partitions > len(found.partitions):
                steps.append(_Growth(one.name, len(found.partitions), one.partitions))
            steps += await _changed_settings(admin, WantedConfigs("topic", one.name, one.configs), errors)
    for wanted in plan.configs:
        steps += await _changed_settings(admin, wanted, errors)
    if plan.acls:
        rules = set(await admin.security.describe_acls())
        steps += [_Rule(one.rule, one.absent) for one in plan.acls if (one.rule in rules) == one.absent]
    if errors:
        raise ItemsFailedError(STEP_BY_STEP, errors)
    return [*steps, *last]


def _torn(plan: ClusterPlan) -> dict[str, KafkaError]:
    """The plan's contradictions; a fencepost broker rejects the same."""
    named = Counter(
        [*(f"topic {one.name}" for one in plan.topics), *(f"{one.kind} {one.name or 'all'}" for one in plan.configs)]
    )
    why = {subject: "the plan names it more than once" for subject, count in named.items() if count > 1}
    absent = {one.rule for one in plan.acls if one.absent}
    both = [one.rule for one in plan.acls if not one.absent and one.rule in absent]
    why |= {f"acl {shown_rule(rule)}": "the plan has it both as present and as absent" for rule in both}
    return {subject: KafkaError(f"{subject}: {text}", code=ErrorCode.INVALID_REQUEST) for subject, text in why.items()}


async def _there(admin: AdminParts, names: list[str]) -> Mapping[str, TopicDescription]:
    if not names:
        return {}
    try:
        return await admin.topics.describe_topics(names)
    except ItemsFailedError as some:
        wrong = {f"topic {name}": error for name, error in some.errors.items() if error.code not in NO_TOPIC}
        if wrong:
            raise ItemsFailedError(STEP_BY_STEP, wrong) from None  # without the results, which are no steps
        return some.results


def _impossible(wanted: WantedTopic, there: TopicDescription) -> KafkaError | None:
    count = len(there.partitions)
    if 0 < wanted.partitions < count:
        why = f"it has {count} partitions, and a topic cannot shrink to {wanted.partitions}"
        return KafkaError(f"topic {wanted.name!r}: {why}", code=ErrorCode.INVALID_PARTITIONS)
    factor = max(len(one.replicas) for one in there.partitions)
    if wanted.replication_factor > 0 and wanted.replication_factor != factor:
        why = f"it has {factor} replicas; a plan cannot move replicas"
        return KafkaError(f"topic {wanted.name!r}: {why}", code=ErrorCode.INVALID_REPLICATION_FACTOR)
    return None


async def _changed_settings(admin: AdminParts, wanted: WantedConfigs, errors: dict[str, KafkaError]) -> list[_Step]:
    """The step that sets them, if one is needed; an error of the broker goes into `errors`."""
    if not wanted.configs:
        return []
    try:
        found = await admin.configs.describe_configs(**subject_of(wanted.kind, wanted.name))
    except RetriableError:
        raise  # no broker answers: the plan is not the cause
    except KafkaError as error:
        errors[f"{wanted.kind} {wanted.name or 'all'}"] = error
        return []
    own = own_source(wanted.kind, wanted.name)
    secret = {key for key in wanted.configs if is_secret(key, found.get(key))}
    changes = _differences(wanted.kind, wanted.name, _own(found, own), wanted.configs, secret)
    return [_Settings(wanted, changes)] if changes else []


def _own(found: Mapping[str, ConfigEntry], source: ConfigSource) -> dict[str, str]:
    """The settings of the thing itself; brokers do not report the values of secrets."""
    return {
        name: HIDDEN if is_secret(name, entry) else synonym.value or ""
        for name, entry in found.items()
        for synonym in entry.synonyms
        if synonym.source == source and synonym.name == name
    }


def _differences(
    kind: str,
    name: str,
    before: Mapping[str, str | None],
    wanted: Mapping[str, str | None],
    secret: Collection[str] = (),
) -> list[PlannedChange]:
    """The differences from the plan. A secret may differ unseen, so it is always set again."""
    return [
        PlannedChange(
            "change" if key in before and value is not None else "delete" if value is None else "create",
            kind,
            name,
            key,
            before.get(key),
            HIDDEN if value is not None and key in secret else value,
        )
        for key, value in wanted.items()
        if before.get(key) != value or (value is not None and key in secret)
    ]
