"""The rights that a plan needs: to see what it names, and to make each change, as the request for this change alone."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from fencepost.broker.security.checks import is_allowed
from fencepost.broker.security.rights import ERROR_OF
from fencepost.coordinator.metadata.commands import ConfigEdits, MorePartitions, NewTopic, Outcome, TopicRef
from fencepost.coordinator.metadata.edits import ClusterEdit
from fencepost.protocol.admin_enums import AclOperation, AclResourceType, ConfigResourceType

if TYPE_CHECKING:
    from fencepost.broker.security.ports import HasRights, RequestInfo
    from fencepost.protocol.messages.api19_create_topics import Plan

_TOPIC, _GROUP, _CLUSTER = AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.CLUSTER
_KIND = {ConfigResourceType.TOPIC: _TOPIC, ConfigResourceType.GROUP: _GROUP}
"""The type of the resource in ACLs; settings of brokers are the cluster's."""


class _Need(NamedTuple):
    operation: AclOperation
    kind: AclResourceType
    name: str


def hidden_parts(node: "HasRights", plan: "Plan", context: "RequestInfo") -> "Iterator[tuple[str, str, Outcome]]":
    """The parts of the plan that the client may not see, as kind, name and error.

    The result of a plan shows what the named resources were before: that needs the rights to describe them.
    """
    if node.authorizer is None:
        return
    for topic in plan.topics:
        for operation in (AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS):
            if refused := _refusal(node, context, _Need(operation, _TOPIC, topic.name)):
                yield "topic", topic.name, refused
                break
    for resource in plan.resources:
        kind = _KIND.get(ConfigResourceType(resource.resource_type), _CLUSTER)
        if refused := _refusal(node, context, _Need(AclOperation.DESCRIBE_CONFIGS, kind, resource.resource_name)):
            yield "group" if kind is _GROUP else "broker", resource.resource_name, refused
    if plan.acls and (refused := _refusal(node, context, _Need(AclOperation.DESCRIBE, _CLUSTER, ""))):
        yield "acl", "0", refused


def refused_edit(node: "HasRights", edit: ClusterEdit, context: "RequestInfo") -> Outcome | None:
    """Why the client may not make this change; None if it may."""
    if node.authorizer is None:
        return None
    if isinstance(edit, NewTopic | TopicRef):
        operation = AclOperation.CREATE if isinstance(edit, NewTopic) else AclOperation.DELETE
        if is_allowed(node, context, operation, _CLUSTER, log_denial=False):
            return None
        return _refusal(node, context, _Need(operation, _TOPIC, edit.name or ""))
    if isinstance(edit, MorePartitions):
        return _refusal(node, context, _Need(AclOperation.ALTER, _TOPIC, edit.name))
    if isinstance(edit, ConfigEdits):
        kind = _KIND.get(ConfigResourceType(edit.resource_type), _CLUSTER)
        return _refusal(node, context, _Need(AclOperation.ALTER_CONFIGS, kind, edit.resource_name))
    return _refusal(node, context, _Need(AclOperation.ALTER, _CLUSTER, ""))


def _refusal(node: "HasRights", context: "RequestInfo", need: _Need) -> Outcome | None:
    operation, kind, name = need
    named = (name,) if kind is not _CLUSTER else ()
    if is_allowed(node, context, operation, kind, *named):
        return None
    resource = "the cluster" if kind is _CLUSTER else f"{kind.name.lower()} {name!r}"
    return Outcome(ERROR_OF[kind], f"This needs the right {operation.name} on {resource}.")
