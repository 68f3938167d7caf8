"""`fencepost topic apply`: topics, settings and access rules as a file describes them, all at once or not at all."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fencepost.cli.connect import Broker, broker_options, fail, print_json
from fencepost.cli.hints import hints_for
from fencepost.cli.topic import plan_text
from fencepost.client import ConfigError, KafkaError, RetriableError
from fencepost.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from fencepost.client.admin import Admin, Applied, ClusterPlan

STEPWISE_ONLY = (
    "this broker cannot make many changes at once: only fencepost can. Here they are made one after the other,"
    " and after an error the earlier ones stay made"
)
PERHAPS_DONE = "the plan may or may not be applied; apply it again with a longer --timeout (applied steps are skipped)"
RULES_NOT_ENFORCED = (
    "note: this broker has no authorizer: it stores access rules, but every client may do everything. To enforce them,"
    " start it with authorizer.class.name=standard"
)


@click.command(short_help="Bring topics, settings and access rules to the state of a file, all or none.")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True))
@click.option("--dry-run", is_flag=True, help="Show the changes and check them on the broker. Change nothing.")
@click.option(
    "--not-atomic",
    is_flag=True,
    help="Change one thing after the other, as Apache Kafka requires. An error leaves a part done.",
)
@broker_options
def apply(file: Path, dry_run: bool, not_atomic: bool, broker: Broker) -> None:
    """Bring topics, settings of brokers and groups, and access rules to the state that FILE describes.

    All differences are changed in one metadata transaction, at the same moment. If one change is refused or the broker
    crashes, nothing changes. Things that FILE does not name stay unchanged. FILE is TOML or JSON; - is standard input.

    \b
      [topics.orders]
      partitions = 12                            # may grow, and never shrinks
      configs = { "retention.ms" = 86400000, "cleanup.policy" = ["compact", "delete"] }
      unset = ["retention.bytes"]                # back to the broker's value

    \b
      [topics.orders-old]
      state = "absent"                           # deleted, with all records

    \b
      [brokers.all.configs]                      # or [brokers.1.configs]
      "log.retention.ms" = 604800000

    \b
      [groups.billing.configs]
      "consumer.session.timeout.ms" = 50000

    \b
      [[acls]]
      principal = "User:billing"                 # or principals = [...]
      operations = ["read", "describe"]
      topic = "orders"                           # or group, transactional_id, cluster = true
      permission = "allow"                       # also: pattern = "prefixed", host = "10.0.0.7", state = "absent"

    Apache Kafka has no such transaction: there a plan needs --not-atomic, which makes one change after the other.

    \b
    Examples:
      fencepost topic apply topics.toml --dry-run
      fencepost topic apply topics.toml
      generate-topics | fencepost topic apply - --json
    """
    plan = _read(file)

    done, errors, not_enforced = broker.ask(lambda admin: _apply(admin, plan, dry_run, atomic=not not_atomic))
    if errors:
        _refused(errors, broker.bootstrap, broker.as_json, dry_run)
    if broker.as_json:
        print_json(plan_text.applied_json(done, dry_run))
    else:
        click.echo(plan_text.applied_text(done, dry_run))
    if not done.atomic and not not_atomic:
        click.echo(f"note: {STEPWISE_ONLY}. Without --dry-run it takes --not-atomic.", err=True)
    if not_enforced:
        click.echo(RULES_NOT_ENFORCED, err=True)


def _read(file: Path) -> "ClusterPlan":
    from fencepost.client.admin import ClusterPlan
    from fencepost.client.admin.plan_file import parse_plan

    try:
        if str(file) == "-":
            return parse_plan(sys.stdin.read(), place="standard input")
        return ClusterPlan.read(file)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    except OSError as error:
        fail(f"{file} cannot be read: {error}")


async def _apply(
    admin: "Admin", plan: "ClusterPlan", dry_run: bool, *, atomic: bool
) -> "tuple[Applied | None, Any, bool]":
    """The changes or the errors, and whether the broker does not enforce the plan's access rules."""
    from fencepost.client.admin import ItemsFailedError

    try:
        done = await admin.apply(plan, validate_only=dry_run, atomic=atomic)
    except ItemsFailedError as some:
        return None, some, False
    except KafkaError as error:
        if error.code is None and isinstance(error, RetriableError) and not dry_run:
            raise KafkaError(f"{error}\n  {PERHAPS_DONE}") from error
        if error.code is not ErrorCode.UNSUPPORTED_VERSION or not atomic:
            raise
        if not dry_run:
            raise KafkaError(
                f"{STEPWISE_ONLY}.\n  To accept that: --not-atomic. To see the changes: --dry-run"
            ) from error
        return await _apply(admin, plan, dry_run, atomic=False)
    return done, None, bool(plan.acls) and done.atomic and not await _enforces(admin)


async def _enforces(admin: "Admin") -> bool:
    """Whether the broker enforces access rules. A client without the right to see them learns nothing: say nothing."""
    try:
        await admin.describe_acls()
    except KafkaError as error:
        return error.code not in (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.SECURITY_DISABLED)
    return True


def _refused(some: Any, bootstrap: str, as_json: bool, dry_run: bool) -> None:
    """Print the reason for each refused thing, and the changes that were made; exit code 1."""
    changes = [change for step in some.results.values() for change in step]
    if as_json:
        print_json(plan_text.refused_json(some.errors, changes, dry_run))
    else:
        for subject, error in some.errors.items():
            message = str(error)
            click.echo(message if message.startswith(f"{subject}:") else f"{subject}: {message}", err=True)
    hints = hints_for(some.errors.values(), bootstrap)
    if changes and not dry_run:
        click.echo(plan_text.changes_text(changes), err=True)
        fail("the changes above were made before the error; correct the plan and apply it again", *hints)
    fail("nothing was changed", *hints)
