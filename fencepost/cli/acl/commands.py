"""`fencepost acl`: which principal may do what on which topic, group, transactional id, or the cluster."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from fencepost.cli.acl.options import (
    OPERATIONS,
    PrincipalType,
    Resource,
    filter_options,
    filters,
    resource_options,
    rules_of,
)
from fencepost.cli.acl.why_denied import why_denied
from fencepost.cli.connect import Broker, broker_options
from fencepost.cli.plain_text import counted, table
from fencepost.client.admin.plan_types import shown_rule
from fencepost.client.admin.security_types import Acl, AclFilter
from fencepost.protocol.admin_enums import AclPermission, PatternType

if TYPE_CHECKING:
    from fencepost.client.admin import Admin

_HEAD = ("PRINCIPAL", "PERMISSION", "OPERATION", "RESOURCE", "NAME", "PATTERN", "FROM")


@click.group()
def acl() -> None:
    """Show, add and remove access rules (ACLs). The broker needs an authorizer: authorizer.class.name=standard.

    A client may do what a rule allows and no rule denies; one DENY is enough. A client that has not logged in is
    User:ANONYMOUS. Principals in the broker's super.users may do everything.

    \b
    Let alice write to the topic orders, also in transactions of the id etl-1:
      fencepost acl add --principal User:alice --producer --topic orders --transactional-id etl-1
    Let bob read it in the group billing:
      fencepost acl add --principal User:bob --consumer --topic orders --group billing
    Which rules apply to the topic orders?
      fencepost acl list --topic orders
    Remove all rules of alice:
      fencepost acl remove --principal User:alice
    Why was carol refused?
      fencepost acl why-denied --principal User:carol --operation write --topic orders

    All commands speak Kafka's protocol and work with Apache Kafka too. Exit code 0: done; 1: failed or refused; 2:
    wrong usage.
    """


acl.add_command(why_denied)


@acl.command("list", short_help="Show access rules.")
@resource_options
@click.option("--exact", is_flag=True, help="Only rules of this name, without those for prefixes and for *.")
@filter_options
@broker_options
def list_command(resources: "Sequence[Resource]", exact: bool, broker: Broker, **selected: Any) -> None:
    """Show access rules: all, or those that apply to the named resources: of that name, of a prefix of it, and of *.

    \b
    Examples:
      fencepost acl list
      fencepost acl list --principal User:alice
      fencepost acl list --topic orders --operation write
    """
    wanted = filters(resources, PatternType.ANY if exact else PatternType.MATCH, **selected)
    found = sorted(broker.ask(lambda admin: _described(admin, wanted)))
    if found or broker.as_json:
        broker.print([_json(rule) for rule in found], table(_HEAD, map(_row, found)))
    else:
        click.echo("No rule matches." if resources or any(selected.values()) else "There are no rules.", err=True)


@acl.command("add", short_help="Add access rules.")
@click.option("--principal", "principals", type=PrincipalType(), metavar="TYPE:NAME", multiple=True, required=True,
              help="Whom the rule is for; User:* is everyone. Repeatable.")  # fmt: skip
@resource_options
@click.option("--prefixed", is_flag=True, help="The rule is about all resources whose names begin with these names.")
@click.option("--operation", "operations", type=click.Choice([*OPERATIONS]), multiple=True,
              help="What the rule allows; --deny: what it denies. Repeatable.")  # fmt: skip
@click.option("--producer", is_flag=True,
              help="Write, describe and create on topics; write and describe on transactional ids.")  # fmt: skip
@click.option("--consumer", is_flag=True, help="Read and describe on topics; read on groups.")
@click.option("--deny", is_flag=True, help="Deny instead of allow.")
@click.option("--host", "hosts", metavar="ADDRESS", multiple=True, default=("*",), show_default=True,
              help="The address that the client has. Repeatable.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Show which rules are missing. Change nothing.")
@broker_options
def add_command(
    resources: "Sequence[Resource]", operations: tuple[str, ...], deny: bool, dry_run: bool, broker: Broker, **more: Any
) -> None:
    """Add access rules: one for each principal, resource, operation and host. Rules that exist stay.

    An allowed read, write, delete or alter includes describe; an allowed alter-configs includes describe-configs.

    \b
    Examples:
      fencepost acl add --principal User:alice --producer --topic orders
      fencepost acl add --principal User:bob --consumer --topic orders- --group billing- --prefixed
      fencepost acl add --principal User:eve --deny --operation all --topic '*' --host 10.0.0.7
      fencepost acl add --principal User:admin --operation all --cluster --dry-run
    """
    permission = AclPermission.DENY if deny else AclPermission.ALLOW
    wanted = rules_of(resources, operations, permission=permission, **more)

    async def query(admin: "Admin") -> list[Acl]:
        there = set(await admin.describe_acls())
        missing = [rule for rule in wanted if rule not in there]
        if missing and not dry_run:
            await admin.create_acls(missing)
        return missing

    _print_changes("+", broker.ask(query), broker, dry_run, "Nothing to add: the rules exist.")


@acl.command("remove", short_help="Remove access rules.")
@resource_options
@click.option("--prefixed", is_flag=True, help="Remove rules about names that begin with these names.")
@filter_options
@click.option("--dry-run", is_flag=True, help="Show which rules would go. Change nothing.")
@broker_options
def remove_command(
    resources: "Sequence[Resource]", prefixed: bool, dry_run: bool, broker: Broker, **selected: Any
) -> None:
    """Remove all access rules that match every option: name a principal, a resource, or both.

    A rule about a prefix or about * is removed only if that is named: --topic orders- --prefixed, --topic '*'.

    \b
    Examples:
      fencepost acl remove --principal User:alice
      fencepost acl remove --principal User:alice --topic orders --operation write
      fencepost acl remove --topic orders- --prefixed --dry-run
    """
    if not resources and selected["principal"] is None:
        raise click.UsageError("name a --principal or a resource: without them all rules would go")
    if prefixed and not resources:
        raise click.UsageError("--prefixed needs the beginnings of names: --topic orders- --prefixed")
    pattern = PatternType.ANY if not resources else PatternType.PREFIXED if prefixed else PatternType.LITERAL
    wanted = filters(resources, pattern, **selected)

    async def query(admin: "Admin") -> list[Acl]:
        if dry_run:
            return sorted(await _described(admin, wanted))
        deleted = await admin.delete_acls(wanted)
        return sorted({rule for rules in deleted.values() for rule in rules})

    _print_changes("-", broker.ask(query), broker, dry_run, "Nothing to remove: no rule matches.")


async def _described(admin: "Admin", wanted: Iterable[AclFilter]) -> set[Acl]:
    return {rule for one in wanted for rule in await admin.describe_acls(one)}


def _print_changes(sign: str, rules: Sequence[Acl], broker: Broker, dry_run: bool, nothing: str) -> None:
    done = "added" if sign == "+" else "removed"
    lines = [f"{sign} {shown_rule(rule)}" for rule in rules]
    last = f"{counted(len(rules), 'rule')} {done}." if not dry_run else f"{counted(len(rules), 'rule')} to be {done}."
    broker.print(
        {done: [_json(rule) for rule in rules], "dry_run": dry_run}, "\n".join([*lines, last]) if rules else nothing
    )
    if dry_run and rules:
        click.echo("Nothing was changed (--dry-run).", err=True)


def _row(rule: Acl) -> tuple[str, ...]:
    kind, name, principal, operation, permission, host, pattern = rule
    return principal, permission.name, operation.name, kind.name, name, pattern.name, host


def _json(rule: Acl) -> dict[str, str]:
    return dict(zip((word.lower() for word in _HEAD), _row(rule), strict=True))
