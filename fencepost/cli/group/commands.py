"""`fencepost group`: show consumer groups, and move or delete their committed offsets."""

from typing import TYPE_CHECKING, Any

import click

from fencepost.cli.completion.names import complete_groups
from fencepost.cli.connect import Broker, broker_options, fail, print_json
from fencepost.cli.group import text as group_text
from fencepost.cli.group.known import known
from fencepost.cli.group.lag import lag
from fencepost.cli.group.reset import reset
from fencepost.cli.parameters import PLACE, Place
from fencepost.cli.places import chosen_of
from fencepost.cli.plain_text import cell, counted, json_value, table
from fencepost.cli.plain_text import places as named
from fencepost.client import KafkaError
from fencepost.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fencepost.client.admin import Admin

STATES = ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Assigning", "Reconciling", "Dead")
TYPES = ("classic", "consumer", "share")


@click.group()
def group() -> None:
    """Show consumer groups, and move or delete their committed offsets.

    The consumers of a group share the partitions of their topics. After a restart they continue at the committed
    offsets.

    \b
    How far behind is a group?
      fencepost group lag billing            records still to read, by partition
    Which member reads which partitions?
      fencepost group describe billing
    Read records again, or skip some?
      fencepost group reset billing orders --to-earliest --dry-run
    Which groups have no members?
      fencepost group list --state Empty

    All commands speak Kafka's protocol and work with Apache Kafka too. Exit code 0: done; 1: failed or refused; 2:
    wrong usage.
    """


@group.command("list")
@click.option("--state", "states", multiple=True, type=click.Choice(STATES, case_sensitive=False), help="Repeatable.")
@click.option("--type", "types", multiple=True, type=click.Choice(TYPES, case_sensitive=False), help="Repeatable.")
@broker_options
def list_command(states: tuple[str, ...], types: tuple[str, ...], broker: Broker) -> None:
    """List groups with their state.

    A group is Empty when it has no members: the broker keeps its offsets for offsets.retention.minutes (a week). You
    can reset or delete it.

    \b
    Examples:
      fencepost group list
      fencepost group list --state Stable --type consumer --json
    """
    found = broker.ask(lambda admin: admin.list_groups(states=states, types=types))
    if broker.as_json:
        print_json(json_value(found))
        return
    if found:
        rows = [(one.group_id, one.type, one.protocol_type, one.state) for one in found]
        click.echo(table(("GROUP", "TYPE", "PROTOCOL", "STATE"), rows))
    click.echo(counted(len(found), "group"), err=True)


@group.command("describe", short_help="Show one group: its state, its members and their partitions.")
@click.argument("group_id", metavar="GROUP", shell_complete=complete_groups)
@broker_options
def describe_command(group_id: str, broker: Broker) -> None:
    """Show one group: its state, its members, and which partitions each of them reads.

    \b
    Example:
      fencepost group describe billing
    """

    async def query(admin: "Admin") -> Any:
        return await known(admin, group_id), await admin.list_group_offsets(group_id, require_stable=False)

    described, committed = broker.ask(query)
    broker.print(
        {**json_value(described), "committed_offsets": len(committed)},
        group_text.describe_text(described, len(committed), broker.bootstrap),
    )


@group.command("delete", short_help="Delete empty groups, or some of their committed offsets.")
@click.argument("group_ids", metavar="GROUP...", nargs=-1, required=True, shell_complete=complete_groups)
@click.option(
    "--offsets",
    "places",
    multiple=True,
    type=PLACE,
    metavar="TOPIC[:PARTITION]",
    help="Delete only the offsets of these partitions, and keep the group; repeatable.",
)
@click.option("--dry-run", is_flag=True, help="Say what would happen. Change nothing.")
@broker_options
def delete_command(group_ids: tuple[str, ...], places: tuple[Place, ...], dry_run: bool, broker: Broker) -> None:
    """Delete empty groups with all their committed offsets. With --offsets delete only some offsets.

    A consumer that joins the group again starts where its auto.offset.reset says. Stop the members first: a group with
    members is refused. With --offsets the group may have members, if they do not read the topic.

    \b
    Examples:
      fencepost group delete billing-test --dry-run
      fencepost group delete billing --offsets old-orders
    """
    if places and len(group_ids) > 1:
        raise click.UsageError("--offsets goes with one GROUP")

    async def query(admin: "Admin") -> Any:
        if places:
            return await _delete_offsets(admin, group_ids[0], places, dry_run)
        return [await _delete(admin, group_id, dry_run) for group_id in group_ids]

    done = broker.ask(query)
    if broker.as_json:
        print_json([{"what": what, "refused": refused, "dry_run": dry_run} for what, refused in done])
    else:
        for what, refused in done:
            click.echo(
                f"{'Would delete' if dry_run else 'Deleted'} {what}." if refused is None else f"Kept {what}: {refused}."
            )
    if any(refused for _, refused in done):
        fail("some groups were not deleted; `fencepost group describe GROUP` shows their members")


async def _delete(admin: "Admin", group_id: str, dry_run: bool) -> tuple[str, str | None]:
    """Delete one group; returns its description and, if it stays, the reason."""
    try:
        described = await known(admin, group_id)
        count = len(await admin.list_group_offsets(group_id, require_stable=False))
        what = f"group {cell(group_id)!r} with {counted(count, 'committed offset')}"
        if described.members:
            return what, f"it has {counted(len(described.members), 'member')}"
        if not dry_run:
            await admin.delete_groups(group_id)
    except KafkaError as error:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return f"group {cell(group_id)!r}", "it does not exist"
        if error.code is ErrorCode.NON_EMPTY_GROUP:
            return f"group {cell(group_id)!r}", "a member has joined it"
        raise
    return what, None


async def _delete_offsets(
    admin: "Admin", group_id: str, places: "Iterable[Place]", dry_run: bool
) -> list[tuple[str, str | None]]:
    """Delete committed offsets; returns a description of each and, if it stays, the reason."""
    from fencepost.client.admin import ItemsFailedError

    await known(admin, group_id)
    committed = await admin.list_group_offsets(group_id, require_stable=False)
    chosen = chosen_of(places, committed)
    if not chosen:
        raise KafkaError(
            f"group {group_id!r} has no committed offset there; `fencepost group lag {group_id}` shows its offsets"
        )
    errors: Mapping[Any, KafkaError] = {}
    try:
        if not dry_run:
            await admin.delete_group_offsets(group_id, chosen)
    except ItemsFailedError as some:
        errors = some.errors
    why = {
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "members of the group read this topic",
        ErrorCode.UNSTABLE_OFFSET_COMMIT: "an open transaction holds it; try again when that has ended",
    }
    done = []
    for partition in sorted(chosen):
        error = errors.get(partition)
        code = None if error is None else error.code
        what = f"offset {committed[partition].offset} of {named([partition])}"
        done.append((what, why.get(code, code.name) if code is not None else None))
    return done


for command in (lag, reset):
    group.add_command(command)
