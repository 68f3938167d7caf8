"""Checks of rights, for handlers: which of the named resources a request may not use.

Every function answers at once if no authorizer is set. Every denial is logged.
"""

import logging
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Any

from fencepost.broker.security.audit import audit, log_allowed, log_denied
from fencepost.broker.security.authorizer import CLUSTER_NAME
from fencepost.broker.security.ports import HasRights, HasRightsAndConfig, RequestInfo
from fencepost.broker.security.principal import CLUSTER
from fencepost.broker.security.refusals import refuse
from fencepost.broker.security.rights import ERROR_OF
from fencepost.protocol.admin_enums import AclOperation, AclResourceType, ConfigResourceType
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.schema import ResponseValue

NOT_ASKED = -(2**31)
"""The value of a field of authorized operations if the client did not ask for it."""
NOTHING: frozenset[str] = frozenset()
_COMMON = (AclOperation.ALTER, AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
OPERATIONS_ON: dict[AclResourceType, tuple[AclOperation, ...]] = {
    AclResourceType.TOPIC: (*_COMMON, AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE),
    AclResourceType.GROUP: (
        AclOperation.READ,
        AclOperation.DESCRIBE,
        AclOperation.DELETE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    AclResourceType.CLUSTER: (
        *_COMMON,
        AclOperation.CREATE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.IDEMPOTENT_WRITE,
    ),
}
"""The operations that a resource of a type has (Kafka's `AclEntry.supportedOperations`)."""


_KIND_OF_SETTINGS: dict[int, AclResourceType] = {
    ConfigResourceType.TOPIC: AclResourceType.TOPIC,
    ConfigResourceType.GROUP: AclResourceType.GROUP,
    ConfigResourceType.BROKER: AclResourceType.CLUSTER,
    ConfigResourceType.BROKER_LOGGER: AclResourceType.CLUSTER,
    ConfigResourceType.CLIENT_METRICS: AclResourceType.CLUSTER,
}


def is_allowed(
    node: HasRights,
    context: RequestInfo,
    operation: AclOperation,
    kind: AclResourceType,
    name: str = CLUSTER_NAME,
    *,
    log_denial: bool = True,
) -> bool:
    """Whether the request may do `operation` on the resource; without a name on the cluster."""
    authorizer = node.authorizer
    if authorizer is None:
        return True
    if authorizer.allows(context.session, operation, kind, name):
        if audit.isEnabledFor(logging.DEBUG):
            log_allowed(context, operation, kind, name)
        return True
    if log_denial:
        log_denied(context, operation, kind, name)
    return False


def denied(
    node: HasRights,
    context: RequestInfo,
    operation: AclOperation,
    kind: AclResourceType,
    names: Iterable[str | None],
    *,
    log_denial: bool = True,
) -> frozenset[str]:
    """Those of `names` on which the request may not do `operation`. None stands for an unknown topic id."""
    if node.authorizer is None:
        return NOTHING
    return frozenset(
        name
        for name in dict.fromkeys(names)
        if name is not None and not is_allowed(node, context, operation, kind, name, log_denial=log_denial)
    )


def denied_topics(
    node: HasRights,
    context: RequestInfo,
    operation: AclOperation,
    names: Iterable[str | None],
    *,
    log_denial: bool = True,
) -> frozenset[str]:
    """`denied`, for topics."""
    if node.authorizer is None:
        return NOTHING
    return denied(node, context, operation, AclResourceType.TOPIC, names, log_denial=log_denial)


def denied_resource(
    node: HasRights, context: RequestInfo, operation: AclOperation, resource_type: int, name: str
) -> ErrorCode:
    """The error if the request may not do `operation` on a resource's settings; NONE if it may.

    The settings of brokers, loggers and client metrics are the cluster's. An unknown type has no rights.
    """
    kind = _KIND_OF_SETTINGS.get(resource_type)
    if node.authorizer is None or kind is None:
        return ErrorCode.NONE
    named = CLUSTER_NAME if kind is AclResourceType.CLUSTER else name
    return ErrorCode.NONE if is_allowed(node, context, operation, kind, named) else ERROR_OF[kind]


def authorized_operations(
    node: HasRights, context: RequestInfo, kind: AclResourceType, name: str = CLUSTER_NAME
) -> int:
    """The operations that the request may do on the resource, as a bit field (KIP-430)."""
    authorizer = node.authorizer
    return sum(
        1 << operation
        for operation in OPERATIONS_ON[kind]
        if authorizer is None or authorizer.allows(context.session, operation, kind, name)
    )


def cluster_operations(node: HasRights, context: RequestInfo, asked: bool) -> int:
    """The field cluster_authorized_operations: 0 without DESCRIBE on the cluster."""
    if not asked:
        return NOT_ASKED
    if not is_allowed(node, context, AclOperation.DESCRIBE, AclResourceType.CLUSTER):
        return 0
    return authorized_operations(node, context, AclResourceType.CLUSTER)


def brokers_only(node: HasRightsAndConfig, request: Any, context: RequestInfo) -> ResponseValue | None:
    """The refusal of a request that only brokers send; None if the client may send it.

    Brokers of the cluster may. With an authorizer its rules have decided already. Without one a client must be on this
    machine, unless the setting `allow.remote.broker.requests` is on.
    """
    host = context.session.client_host
    if context.session.principal == CLUSTER:
        return None
    if node.authorizer is not None or node.config.allow_remote_broker_requests or is_loopback(host):
        return None
    log_denied(context, AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER, CLUSTER_NAME)
    return refuse(request, context, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def is_loopback(host: str) -> bool:
    """Whether a client's address is of this machine only."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
