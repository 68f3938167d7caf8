"""A plan in a CreateTopics request (docs/decisions/0034-a-plan-at-once.md): all of its changes, or none.

The changes are computed from the same image on which the controller decides, so no other request comes in between.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fencepost.broker.metadata.acl_requests import audit_text
from fencepost.broker.metadata.plan_rights import hidden_parts, refused_edit
from fencepost.broker.network.context import RequestContext
from fencepost.broker.ports import Broker
from fencepost.broker.security.audit import log_change
from fencepost.coordinator.metadata.commands import ConfigEdit, ConfigEdits, MorePartitions, NewTopic, Outcome, TopicRef
from fencepost.coordinator.metadata.edits import AppliedEdits, ClusterEdit, CreateAcl, DeleteAcl
from fencepost.coordinator.metadata.image import NOTHING, Acl, ConfigResource, MetadataImage, TopicImage
from fencepost.coordinator.metadata.ports import MutationQuota
from fencepost.protocol.admin_enums import ConfigOperation, ConfigResourceType
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api19_create_topics import (
    Plan,
    PlanChange,
    PlannedAcl,
    PlannedSetting,
    PlannedTopic,
    PlanOutcome,
    PlanProblem,
)

logger = logging.getLogger(__name__)

TOPIC, ACL, PARTITIONS = "topic", "acl", "partitions"
KINDS: dict[int, str] = {ConfigResourceType.BROKER: "broker", ConfigResourceType.GROUP: "group"}
"""The resource types whose settings a plan may hold, besides topics."""
_NOT_BLAMED = (ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED)
_OF_THE_WHOLE = ErrorCode.NOT_CONTROLLER
"""The metadata log accepts no append: no part of the plan caused this error."""


class Problem(NamedTuple):
    """Why a part of a plan cannot be applied. `kind` and `name` are empty if it is the whole plan."""

    kind: str
    name: str
    outcome: Outcome


class _Part(NamedTuple):
    """One change, and the resource that it changes."""

    kind: str
    name: str
    edit: ClusterEdit


async def apply_plan(
    node: Broker, plan: Plan, validate_only: bool, context: RequestContext, mutations: MutationQuota | None = None
) -> PlanOutcome:
    """Apply the plan, or return its problems. Returns when the changes are durable."""
    problems = _malformed(plan) or [Problem(*hidden) for hidden in hidden_parts(node, plan, context)]
    parts: list[_Part] = []

    def edits(image: MetadataImage) -> list[ClusterEdit]:
        problems.extend(_impossible(image, plan))
        if not problems:
            parts.extend(_parts(image, plan))
            refused = [(part, refused_edit(node, part.edit, context)) for part in parts]
            problems.extend(Problem(part.kind, part.name, outcome) for part, outcome in refused if outcome is not None)
        return [] if problems else [part.edit for part in parts]

    applied = None if problems else await node.metadata.apply(edits, validate_only, "plan", mutations)
    if applied is not None:
        problems += _problems(parts, applied)
    by = f"client {context.client_id!r} at {context.client_host}"
    if problems or applied is None or applied.delta is None:
        first = problems[0]
        logger.warning(
            "plan refused by=%s: %d problem(s), the first with %s %s: %s",
            by,
            len(problems),
            first.kind,
            first.name,
            first.outcome.message,
        )
        return PlanOutcome(problems=[_problem(one) for one in problems])
    changes = list(_changes(plan, applied.delta.before, applied.delta.image))
    if changes and not validate_only:
        logger.info("plan applied by=%s: %d change(s)", by, len(changes))
        for part in parts:
            if isinstance(part.edit, CreateAcl | DeleteAcl):
                event = "ACL_CREATED" if isinstance(part.edit, CreateAcl) else "ACL_DELETED"
                log_change(context, event, audit_text(part.edit.acl))
    return PlanOutcome(changes=changes)


def refused_plan(message: str) -> PlanOutcome:
    return PlanOutcome(problems=[_problem(Problem("", "", Outcome(ErrorCode.INVALID_REQUEST, message)))])


def _problem(one: Problem) -> PlanProblem:
    return PlanProblem(kind=one.kind, name=one.name, error_code=one.outcome.code, error_message=one.outcome.message)


# -- problems


def _malformed(plan: Plan) -> list[Problem]:
    """Duplicates, contradictions and unknown resource types in the plan."""
    found: list[Problem] = []
    seen: set[tuple[str, str]] = set()
    named = [(TOPIC, topic.name, topic.settings) for topic in plan.topics]
    for resource in plan.resources:
        kind = KINDS.get(resource.resource_type)
        if kind is None:
            why = Outcome(
                ErrorCode.INVALID_REQUEST, f"A plan has no settings for resource type {resource.resource_type}."
            )
            found.append(Problem("resource", resource.resource_name, why))
        else:
            named.append((kind, resource.resource_name, resource.settings))
    for kind, name, settings in named:
        if (kind, name) in seen:
            found.append(Problem(kind, name, Outcome(ErrorCode.INVALID_REQUEST, "The plan names it more than once.")))
        if len({setting.name for setting in settings}) < len(settings):
            twice = Outcome(ErrorCode.INVALID_REQUEST, "The plan names one of its settings more than once.")
            found.append(Problem(kind, name, twice))
        seen.add((kind, name))
    rules: dict[Acl, bool] = {}
    for number, wanted in enumerate(plan.acls):
        if rules.setdefault(_acl(wanted), wanted.absent) != wanted.absent:
            text = "The plan wants it to be there, and not to be there."
            found.append(Problem(ACL, str(number), Outcome(ErrorCode.INVALID_REQUEST, text)))
    return found


def _impossible(image: MetadataImage, plan: Plan) -> list[Problem]:
    """Wishes that no change of the metadata can fulfil."""
    found: list[Problem] = []
    for wanted in plan.topics:
        topic = image.topics_by_name.get(wanted.name)
        if topic is None or wanted.absent:
            continue
        factor = max(len(partition.replicas) for partition in topic.assignment)
        if wanted.replication_factor not in (-1, factor):
            text = f"The topic has {factor} replica(s), and a plan cannot move replicas."
            found.append(Problem(TOPIC, wanted.name, Outcome(ErrorCode.INVALID_REPLICATION_FACTOR, text)))
    return found


def _problems(parts: list[_Part], applied: AppliedEdits) -> list[Problem]:
    """The parts that the controller rejected, or the whole plan if the log rejected the append."""
    if not applied.refused:
        return []
    blamed = [outcome for outcome in applied.outcomes if outcome.code not in _NOT_BLAMED]
    if len(applied.outcomes) != len(parts) or blamed[0].code is _OF_THE_WHOLE:
        return [Problem("", "", blamed[0])]
    return [
        Problem(part.kind, part.name, outcome)
        for part, outcome in zip(parts, applied.outcomes, strict=True)
        if outcome.code not in _NOT_BLAMED
    ]


# -- changes to make


def _parts(image: MetadataImage, plan: Plan) -> list[_Part]:
    """The changes. Deletions come first, because a new name may collide with an old one; then by kind."""
    gone: list[_Part] = []
    new: list[_Part] = []
    grown: list[_Part] = []
    altered: list[_Part] = []
    for wanted in plan.topics:
        topic = image.topics_by_name.get(wanted.name)
        if wanted.absent:
            if topic is not None:
                gone.append(_Part(TOPIC, wanted.name, TopicRef(name=wanted.name)))
        elif topic is None:
            new.append(_Part(TOPIC, wanted.name, _new_topic(wanted)))
        else:
            if wanted.partitions not in (-1, topic.partitions):
                grown.append(_Part(TOPIC, wanted.name, MorePartitions(wanted.name, wanted.partitions)))
            altered += _settings(image, TOPIC, ConfigResource(ConfigResourceType.TOPIC, wanted.name), wanted.settings)
    for resource in plan.resources:
        kind = ConfigResourceType(resource.resource_type)
        altered += _settings(image, KINDS[kind], ConfigResource(kind, resource.resource_name), resource.settings)
    there = set(image.acls.values())
    revoked: dict[Acl, _Part] = {}
    granted: dict[Acl, _Part] = {}
    for number, rule in enumerate(plan.acls):
        acl = _acl(rule)
        if rule.absent and acl in there:
            revoked.setdefault(acl, _Part(ACL, str(number), DeleteAcl(acl)))
        elif not rule.absent and acl not in there:
            granted.setdefault(acl, _Part(ACL, str(number), CreateAcl(acl)))
    return [*gone, *new, *grown, *altered, *revoked.values(), *granted.values()]


def _new_topic(wanted: PlannedTopic) -> NewTopic:
    configs = {setting.name: setting.value for setting in wanted.settings if setting.value is not None}
    return NewTopic(wanted.name, wanted.partitions, wanted.replication_factor, configs=configs)


def _settings(
    image: MetadataImage, kind: str, resource: ConfigResource, settings: Iterable[PlannedSetting]
) -> list[_Part]:
    before = image.configs.get(resource, NOTHING)
    edits = tuple(
        ConfigEdit(
            setting.name, ConfigOperation.DELETE if setting.value is None else ConfigOperation.SET, setting.value
        )
        for setting in settings
        if before.get(setting.name) != setting.value
    )
    return [_Part(kind, resource.name, ConfigEdits(resource.type, resource.name, edits))] if edits else []


def _acl(wanted: PlannedAcl) -> Acl:
    return Acl(
        wanted.resource_type,
        wanted.resource_name,
        wanted.pattern_type,
        wanted.principal,
        wanted.host,
        wanted.operation,
        wanted.permission_type,
    )


# -- changes made


def _changes(plan: Plan, before: MetadataImage, after: MetadataImage) -> Iterable[PlanChange]:
    """The differences between the two images in the resources that the plan names, in the plan's order."""
    for wanted in plan.topics:
        yield from _topic_changes(wanted, before.topics_by_name.get(wanted.name), after.topics_by_name.get(wanted.name))
    for planned in plan.resources:
        kind = ConfigResourceType(planned.resource_type)
        resource = ConfigResource(kind, planned.resource_name)
        held, holds = before.configs.get(resource, NOTHING), after.configs.get(resource, NOTHING)
        yield from _setting_changes(KINDS[kind], planned.resource_name, held, holds, planned.settings)
    there, now = set(before.acls.values()), set(after.acls.values())
    for number, rule in enumerate(plan.acls):
        acl = _acl(rule)
        if (acl in there) != (acl in now):
            yield PlanChange(action="create" if acl in now else "delete", kind=ACL, name=str(number))


def _topic_changes(wanted: PlannedTopic, before: TopicImage | None, after: TopicImage | None) -> Iterable[PlanChange]:
    held, holds = (None if topic is None else str(topic.partitions) for topic in (before, after))
    if held != holds:
        action = "create" if held is None else "delete" if holds is None else "change"
        yield PlanChange(action=action, kind=TOPIC, name=wanted.name, setting=PARTITIONS, before=held, after=holds)
    if after is not None:
        old = NOTHING if before is None else before.configs
        yield from _setting_changes(TOPIC, wanted.name, old, after.configs, wanted.settings)


def _setting_changes(
    kind: str, name: str, before: Mapping[str, str], after: Mapping[str, str], settings: Iterable[PlannedSetting]
) -> Iterable[PlanChange]:
    for setting in settings:
        old, new = before.get(setting.name), after.get(setting.name)
        if old != new:
            action = "create" if old is None else "delete" if new is None else "change"
            yield PlanChange(action=action, kind=kind, name=name, setting=setting.name, before=old, after=new)
