"""`fencepost acl why-denied`: the rule that denies an operation, or that none allows it; what to do about it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from fencepost.cli.acl.options import OPERATIONS, PrincipalType, Resource, resource_options
from fencepost.cli.connect import Broker, broker_options, command_for
from fencepost.client.admin.plan_types import shown_rule
from fencepost.client.admin.security_types import Acl, AclFilter
from fencepost.protocol.admin_enums import AclOperation, AclPermission, AclResourceType, PatternType

if TYPE_CHECKING:
    from fencepost.broker.security.authorizer import Verdict
    from fencepost.client.admin import Admin

ANY_HOST = "*"
CLASS, SUPER_USERS, OPEN = "authorizer.class.name", "super.users", "allow.everyone.if.no.acl.found"
NEAR_MAX = 5
"""How many rules of the same resource that do not apply are shown."""
_OPTIONS = {
    AclResourceType.TOPIC: "--topic",
    AclResourceType.GROUP: "--group",
    AclResourceType.TRANSACTIONAL_ID: "--transactional-id",
    AclResourceType.DELEGATION_TOKEN: "--delegation-token",
    AclResourceType.USER: "--user-principal",
}


class _Known(NamedTuple):
    """What the broker says: its settings of the authorizer, and the rules about the resource."""

    settings: dict[str, str]
    rules: list[Acl]


class _Question(NamedTuple):
    principal: str
    host: str
    operation: AclOperation
    resource: Resource

    def answered(self, allowed: bool) -> str:
        """The question as a statement."""
        kind, name = self.resource
        place = "" if self.host == ANY_HOST else f" from {self.host}"
        verb = "may" if allowed else "may not"
        return f"{self.principal}{place} {verb} {self.operation.name} on {kind.name} {name}."


@click.command("why-denied", short_help="Explain why a principal may not do something, or that it may.")
@click.option("--principal", type=PrincipalType(), metavar="TYPE:NAME", required=True, help="Who was denied.")
@click.option("--operation", type=click.Choice([word for word in OPERATIONS if word != "all"]), required=True,
              help="What was denied.")  # fmt: skip
@resource_options
@click.option("--host", metavar="ADDRESS", default=ANY_HOST,
              help="The client's address. [default: an address that no rule names]")  # fmt: skip
@broker_options
def why_denied(principal: str, operation: str, resources: Sequence[Resource], host: str, broker: Broker) -> None:
    """Explain why a principal may not do an operation on a resource: which rule denies it, or that none allows it.

    The values are in the broker's log: a line of fencepost.audit that begins with DENIED.

    \b
    Examples:
      fencepost acl why-denied --principal User:alice --operation write --topic orders
      fencepost acl why-denied --principal User:bob --operation read --group billing --host 10.0.0.7
      fencepost acl why-denied --principal User:bob --operation cluster-action --cluster
    """
    if len(resources) != 1:
        raise click.UsageError("name one resource: --topic, --group, --transactional-id or --cluster")
    question = _Question(principal, host, OPERATIONS[operation], resources[0])
    known: _Known = broker.ask(lambda admin: _ask(admin, question.resource))
    if not known.settings.get(CLASS):
        broker.print(
            {"allowed": True, "reason": "no authorizer", "rule": None, "command": None},
            f"ALLOWED: the broker has no authorizer ({CLASS}), so every client may do everything.",
        )
        return
    verdict = _decide(question, known)
    command = None if verdict.allowed else _remedy(question, verdict, broker)
    rule = None if verdict.rule is None else shown_rule(_as_client_acl(verdict.rule))
    reason = verdict.reason.name.lower().replace("_", " ")
    broker.print(
        {"allowed": verdict.allowed, "reason": reason, "rule": rule, "command": command},
        "\n".join(_lines(question, known, verdict, rule, command)),
    )


async def _ask(admin: "Admin", resource: Resource) -> _Known:
    cluster = await admin.describe_cluster()
    entries = await admin.describe_configs(broker=cluster.brokers[0].broker_id)
    settings = {name: entries[name].value or "" for name in (CLASS, SUPER_USERS, OPEN) if name in entries}
    if not settings.get(CLASS):
        return _Known(settings, [])
    about = AclFilter(resource_type=resource.kind, name=resource.name, pattern_type=PatternType.MATCH)
    return _Known(settings, await admin.describe_acls(about))


def _decide(question: _Question, known: _Known) -> "Verdict":
    """The broker's own decision, from its rules and settings."""
    from fencepost.broker.security.authorizer import Authorizer
    from fencepost.broker.security.principal import Principal
    from fencepost.coordinator.metadata import image

    rules = [
        image.Acl(one.resource_type, one.name, one.pattern_type, one.principal, one.host, one.operation, one.permission)
        for one in known.rules
    ]
    users = [user.strip() for user in known.settings.get(SUPER_USERS, "").split(";") if user.strip()]
    authorizer = Authorizer(rules, users, allow_if_no_acl=known.settings.get(OPEN) == "true")
    kind, _, name = question.principal.partition(":")
    return authorizer.explain(Principal(kind, name), question.host, question.operation, *question.resource)


def _as_client_acl(rule: Any) -> Acl:
    return Acl(
        AclResourceType(rule.resource_type),
        rule.resource_name,
        rule.principal,
        AclOperation(rule.operation),
        AclPermission(rule.permission_type),
        rule.host,
        PatternType(rule.pattern_type),
    )


def _remedy(question: _Question, verdict: "Verdict", broker: Broker) -> str:
    """The command that grants the right, or that removes the rule that denies it."""
    if verdict.rule is None:
        where = ["--cluster"] if question.resource.kind is AclResourceType.CLUSTER else _named(question.resource)
        host = [] if question.host == ANY_HOST else ["--host", question.host]
        word = _word(question.operation)
        return command_for(
            broker.bootstrap, "acl", "add", "--principal", question.principal, *where, "--operation", word, *host
        )
    rule = _as_client_acl(verdict.rule)
    where = ["--cluster"] if rule.resource_type is AclResourceType.CLUSTER else _named(rule)
    prefixed = ["--prefixed"] if rule.pattern_type is PatternType.PREFIXED else []
    chosen = ["--operation", _word(rule.operation), "--permission", "deny", "--host", rule.host]
    return command_for(broker.bootstrap, "acl", "remove", "--principal", rule.principal, *where, *prefixed, *chosen)


def _named(resource: Resource | Acl) -> list[str]:
    return [_OPTIONS[resource[0]], resource[1]]


def _word(operation: AclOperation) -> str:
    return operation.name.lower().replace("_", "-")


def _lines(question: _Question, known: _Known, verdict: "Verdict", rule: str | None, command: str | None) -> list[str]:
    from fencepost.broker.security.authorizer import Reason

    head = f"{'ALLOWED' if verdict.allowed else 'DENIED'}: {question.answered(verdict.allowed)}"
    if verdict.reason is Reason.SUPER_USER:
        return [head, f"{question.principal} is in {SUPER_USERS}: no rule restricts it."]
    if rule is not None:
        lines = [head, f"This rule decides: {rule}"]
        return lines if command is None else [*lines, f"To remove it: {command}"]
    if verdict.allowed:
        return [head, f"No rule is about {question.resource.kind.name} {question.resource.name}, and {OPEN} is true."]
    lines = [head, "No rule allows it."]
    if known.rules:
        lines.append("Rules about the resource, for other principals, operations or addresses:")
        lines += [f"  {shown_rule(one)}" for one in known.rules[:NEAR_MAX]]
        if len(known.rules) > NEAR_MAX:
            lines.append(f"  and {len(known.rules) - NEAR_MAX} more")
    return [*lines, f"To allow it: {command}"]
