"""The options of `fencepost acl` that name resources, principals and operations; and the rules or filters they mean."""

import functools
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

import click

from fencepost.client.admin.security_types import Acl, AclFilter
from fencepost.protocol.admin_enums import AclOperation, AclPermission, AclResourceType, PatternType

CLUSTER_NAME = "kafka-cluster"
_KINDS = {
    "topic": AclResourceType.TOPIC,
    "group": AclResourceType.GROUP,
    "transactional_id": AclResourceType.TRANSACTIONAL_ID,
    "delegation_token": AclResourceType.DELEGATION_TOKEN,
    "user_principal": AclResourceType.USER,
}
OPERATIONS = {one.name.lower().replace("_", "-"): one for one in AclOperation if one >= AclOperation.ALL}
"""By the word on the command line."""
_TOPIC, _GROUP, _ID = AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.TRANSACTIONAL_ID
_PRODUCER = {
    _TOPIC: (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE),
    _ID: (AclOperation.WRITE, AclOperation.DESCRIBE),
}
_CONSUMER = {_TOPIC: (AclOperation.READ, AclOperation.DESCRIBE), _GROUP: (AclOperation.READ,)}
"""The operations that kafka-acls.sh gives for --producer and --consumer, by the type of the resource."""


class Resource(NamedTuple):
    """A resource that the command line names."""

    kind: AclResourceType
    name: str


class PrincipalType(click.ParamType):  # type: ignore[type-arg]
    """A principal in Kafka's form, TYPE:NAME."""

    name = "principal"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        kind, _, name = text.partition(":")
        if not kind or not name:
            self.fail(f"{text!r} is not a principal; write TYPE:NAME, for example User:{text.strip(':')}", param, ctx)
        return text


def resource_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--topic, --group and the others, each repeatable; the command gets them as `resources`."""

    @functools.wraps(command)
    def call(cluster: bool, **given: Any) -> Any:
        resources = [Resource(kind, name) for word, kind in _KINDS.items() for name in given.pop(word)]
        if cluster:
            resources.append(Resource(AclResourceType.CLUSTER, CLUSTER_NAME))
        return command(resources=resources, **given)

    options: Callable[..., Any] = click.option("--cluster", is_flag=True, help="The cluster.")(call)
    for word, metavar, what in (
        ("user-principal", "PRINCIPAL", "A user, whose delegation tokens the rule is about"),
        ("delegation-token", "ID", "A delegation token"),
        ("transactional-id", "ID", "A transactional id"),
        ("group", "GROUP", "A consumer group"),
        ("topic", "TOPIC", "A topic"),
    ):
        options = click.option(f"--{word}", metavar=metavar, multiple=True, help=f"{what}; * for all. Repeatable.")(
            options
        )
    return options


def filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--principal, --operation, --permission and --host, each to select rules; the command gets their values."""
    for option in (
        click.option("--host", metavar="ADDRESS", help="Only rules for this address; * selects those for any."),
        click.option("--permission", type=click.Choice(["allow", "deny"]), help="Only rules that allow, or that deny."),
        click.option("--operation", type=click.Choice([*OPERATIONS]), help="Only rules for this operation."),
        click.option("--principal", type=PrincipalType(), metavar="TYPE:NAME", help="Only rules of this principal."),
    ):
        command = option(command)
    return command


def filters(
    resources: Sequence[Resource],
    pattern: PatternType,
    *,
    principal: str | None,
    operation: str | None,
    permission: str | None,
    host: str | None,
) -> list[AclFilter]:
    """One filter for each resource, or one for all."""
    whole = AclFilter(
        principal=principal,
        operation=AclOperation.ANY if operation is None else OPERATIONS[operation],
        permission=AclPermission.ANY if permission is None else AclPermission[permission.upper()],
        host=host,
    )
    if not resources:
        return [whole if pattern is PatternType.MATCH else whole._replace(pattern_type=pattern)]
    return [whole._replace(resource_type=kind, name=name, pattern_type=pattern) for kind, name in resources]


def rules_of(
    resources: Sequence[Resource],
    operations: Sequence[str],
    *,
    producer: bool,
    consumer: bool,
    principals: Sequence[str],
    hosts: Sequence[str],
    permission: AclPermission,
    prefixed: bool,
) -> list[Acl]:
    """The rules to add, each once. Raises UsageError if the options name none, or do not fit together."""
    if not resources:
        raise click.UsageError("name a resource: --topic, --group, --transactional-id or --cluster")
    if not (operations or producer or consumer):
        raise click.UsageError("name what the rule is about: --operation, --producer or --consumer")
    if (producer or consumer) and permission is AclPermission.DENY:
        raise click.UsageError("--producer and --consumer allow; to deny, name each --operation")
    named = {resource.kind for resource in resources}
    if producer and _TOPIC not in named:
        raise click.UsageError("--producer needs a --topic")
    if consumer and not {_TOPIC, _GROUP} <= named:
        raise click.UsageError(
            "--consumer needs a --topic and a --group; for readers without a group use --topic with --operation read"
        )
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    if prefixed and any(kind is AclResourceType.CLUSTER for kind, _ in resources):
        raise click.UsageError("--prefixed needs names; the cluster has one name")
    found: dict[Acl, None] = {}
    for resource, principal, host in product(resources, principals, hosts):
        for operation in _operations(resource.kind, operations, producer, consumer):
            found[Acl(*resource, principal, operation, permission, host, pattern)] = None
    return list(found)


def _operations(
    kind: AclResourceType, operations: Sequence[str], producer: bool, consumer: bool
) -> Iterator[AclOperation]:
    yield from (OPERATIONS[word] for word in operations)
    yield from _PRODUCER.get(kind, ()) if producer else ()
    yield from _CONSUMER.get(kind, ()) if consumer else ()
