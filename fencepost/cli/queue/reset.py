"""`fencepost queue reset`: set the start offsets of a share group."""

from typing import TYPE_CHECKING, Any

import click

from fencepost.cli.completion.names import complete_groups, complete_topics
from fencepost.cli.connect import Broker, broker_options, command_for, print_json
from fencepost.cli.group.reset import one_way
from fencepost.cli.group.text import moves_text
from fencepost.cli.parameters import PLACE, DurationType, MomentType, Place
from fencepost.cli.places import partitions_of
from fencepost.cli.plain_text import counted
from fencepost.client import KafkaError
from fencepost.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from fencepost.client.admin import Admin


@click.command(short_help="Set the start offsets of a share group.")
@click.argument("group_id", metavar="GROUP", shell_complete=complete_groups)
@click.argument(
    "places", metavar="TOPIC[:PARTITION]...", nargs=-1, required=True, type=PLACE, shell_complete=complete_topics
)
@click.option("--to-earliest", is_flag=True, help="Go to the first record.")
@click.option("--to-latest", is_flag=True, help="Go to the last stable offset, after the last visible record.")
@click.option("--to-offset", type=click.IntRange(min=0), metavar="N", help="Go to this offset.")
@click.option(
    "--to-datetime",
    "--to-time",
    "to_datetime",
    type=MomentType(),
    metavar="ISO",
    help="Go to the first record of this time or later; UTC.",
)
@click.option(
    "--by-duration", type=DurationType(), metavar="2h30m", help="Go to the first record of this long ago or later."
)
@click.option("--dry-run", is_flag=True, help="Say what would happen. Change nothing.")
@broker_options
def reset(group_id: str, places: tuple[Place, ...], dry_run: bool, broker: Broker, **how: Any) -> None:
    """Set the start offsets of a share group, so that it gets records again or skips some.

    All that the group knows of these partitions is forgotten: records from the new offset on are delivered, also those
    that were accepted before, and their delivery counts begin anew. Stop the members first: a group with members is
    refused. A group that does not exist is created.

    \b
    Examples:
      fencepost queue reset workers orders --to-earliest --dry-run
      fencepost queue reset workers orders:0 --to-offset 1042
      fencepost queue reset workers orders --to-time 2026-11-21T06:00:00+01:00
    """
    way, value = one_way(how)

    async def query(admin: "Admin") -> Any:
        from fencepost.client.admin.client import parts_of
        from fencepost.client.admin.lag import moves

        await _refuse_if_read(admin, group_id, broker.bootstrap)
        wanted = await partitions_of(admin, places)
        offsets = await admin.list_share_group_offsets(group_id, wanted)
        before = {p: one.start_offset for p, one in offsets.items() if one.start_offset is not None}
        found = await moves(parts_of(admin), wanted, before, way, value)
        if not dry_run:
            await admin.alter_share_group_offsets(group_id, {move.partition: move.after for move in found})
        return found

    found = broker.ask(query)
    if broker.as_json:
        rows = [
            {"partition": f"{p.topic}:{p.partition}", "before": before, "after": after, "remark": remark}
            for p, before, after, remark in found
        ]
        print_json([{**row, "dry_run": dry_run} for row in rows])
        return
    click.echo(moves_text(found))
    done = "Nothing was changed; without --dry-run" if dry_run else "Done:"
    begins = "would begin" if dry_run else "begins"
    click.echo(f"{done} share group {group_id!r} {begins} there, on {counted(len(found), 'partition')}.", err=True)


async def _refuse_if_read(admin: "Admin", group_id: str, bootstrap: str) -> None:
    """Refuse a group with members, as Kafka does; a new group is allowed. Raises KafkaError."""
    from fencepost.client.admin.client import parts_of
    from fencepost.client.admin.queues import known_share_group

    try:
        found = await known_share_group(parts_of(admin), group_id)
    except KafkaError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return
    if found.members:
        raise KafkaError(
            f"share group {group_id!r} is {found.state} with {counted(len(found.members), 'member')}: stop them first\n"
            f"  list them: {command_for(bootstrap, 'queue', 'describe', group_id)}"
        )
