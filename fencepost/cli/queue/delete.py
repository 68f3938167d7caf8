"""`fencepost queue delete`: delete share groups, or what they know of some topics."""

from typing import TYPE_CHECKING

import click

from fencepost.cli.completion.names import complete_groups
from fencepost.cli.connect import Broker, broker_options, fail, print_json
from fencepost.cli.plain_text import cell, counted
from fencepost.client import KafkaError
from fencepost.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from fencepost.client.admin import Admin

_REASONS = {
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no share group of this name",
    ErrorCode.NON_EMPTY_GROUP: "a member has joined it",
}


@click.command(short_help="Delete empty share groups with all that they know.")
@click.argument("group_ids", metavar="GROUP...", nargs=-1, required=True, shell_complete=complete_groups)
@click.option("--dry-run", is_flag=True, help="Say what would happen. Change nothing.")
@broker_options
def delete(group_ids: tuple[str, ...], dry_run: bool, broker: Broker) -> None:
    """Delete empty share groups, with what they know of their records.

    A member that joins the group again begins where its share.auto.offset.reset says. Stop the members first: a group
    with members is refused.

    \b
    Example:
      fencepost queue delete workers-test --dry-run
    """

    async def query(admin: "Admin") -> list[tuple[str, str | None]]:
        return [(group_id, await _delete(admin, group_id, dry_run)) for group_id in group_ids]

    done = broker.ask(query)
    if broker.as_json:
        print_json([{"group": group_id, "refused": refused, "dry_run": dry_run} for group_id, refused in done])
    else:
        for group_id, refused in done:
            what = f"share group {cell(group_id)!r}"
            click.echo(
                f"{'Would delete' if dry_run else 'Deleted'} {what}." if refused is None else f"Kept {what}: {refused}."
            )
    if any(refused for _, refused in done):
        fail("some share groups were not deleted; `fencepost queue describe GROUP` shows their members")


async def _delete(admin: "Admin", group_id: str, dry_run: bool) -> str | None:
    """Delete one share group, and never one of another type; returns the reason if it stays."""
    from fencepost.client.admin import ItemsFailedError

    try:
        described = (await admin.describe_share_groups(group_id))[group_id]
        if described.members:
            return f"it has {counted(len(described.members), 'member')}"
        if not dry_run:
            await admin.delete_groups(group_id)
    except ItemsFailedError as failed:
        error: KafkaError = failed.errors[group_id]
        if error.code not in _REASONS:
            raise
        return _REASONS[error.code]
    return None
