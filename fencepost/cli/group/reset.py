"""`fencepost group reset`: move the committed offsets of a group."""

from typing import TYPE_CHECKING, Any

import click

from fencepost.cli.completion.names import complete_groups, complete_topics
from fencepost.cli.connect import Broker, broker_options, command_for, print_json
from fencepost.cli.group import text as group_text
from fencepost.cli.group.known import refuse_share_group
from fencepost.cli.parameters import PLACE, DurationType, MomentType, Place
from fencepost.cli.places import partitions_of
from fencepost.cli.plain_text import counted
from fencepost.client import KafkaError

if TYPE_CHECKING:
    from fencepost.client.admin import Admin


@click.command(short_help="Move the committed offsets of a group.")
@click.argument("group_id", metavar="GROUP", shell_complete=complete_groups)
@click.argument("places", metavar="[TOPIC[:PARTITION]]...", nargs=-1, type=PLACE, shell_complete=complete_topics)
@click.option(
    "--all", "everywhere", is_flag=True, help="Move every partition that the group has committed an offset for."
)
@click.option("--to-earliest", is_flag=True, help="Go to the first record.")
@click.option("--to-latest", is_flag=True, help="Go to the last stable offset, after the last visible record.")
@click.option("--to-offset", type=click.IntRange(min=0), metavar="N", help="Go to this offset.")
@click.option("--shift-by", type=int, metavar="N", help="Go this many offsets forward, or back if negative.")
@click.option(
    "--to-datetime", type=MomentType(), metavar="ISO", help="Go to the first record of this time or later; UTC."
)
@click.option(
    "--by-duration", type=DurationType(), metavar="2h30m", help="Go to the first record of this long ago or later."
)
@click.option("--dry-run", is_flag=True, help="Say what would happen. Change nothing.")
@broker_options
def reset(
    group_id: str, places: tuple[Place, ...], everywhere: bool, dry_run: bool, broker: Broker, **how: Any
) -> None:
    """Move the committed offsets of a group, so that it reads records again or skips some.

    Name the partitions (TOPIC means all of its partitions) and one way to choose the new offset. Stop the members of
    the group first: a group with members is refused. So is one whose offsets an open transaction holds.

    The new offset lies between the first record and the last stable offset, so records of an open transaction are not
    skipped. Markers have offsets too: --shift-by -10 may be fewer than ten records.

    \b
    Examples:
      fencepost group reset billing orders --to-earliest --dry-run
      fencepost group reset billing orders:0 orders:3 --to-offset 1042
      fencepost group reset billing --all --by-duration 2h
      fencepost group reset billing --all --to-datetime 2026-11-21T06:00:00+01:00
    """
    kind, value = one_way(how)
    if everywhere == bool(places):
        raise click.UsageError("name topics or partitions, or use --all")

    async def query(admin: "Admin") -> Any:
        from fencepost.client.admin.client import parts_of
        from fencepost.client.admin.lag import moves

        await _refuse_if_read(admin, group_id, broker.bootstrap)
        committed = {p: one.offset for p, one in (await admin.list_group_offsets(group_id)).items()}
        wanted = sorted(committed) if everywhere else await partitions_of(admin, places)
        if not wanted:
            raise KafkaError(f"group {group_id!r} has committed no offset; name the topics to set offsets for")
        found = await moves(parts_of(admin), wanted, committed, kind, value)
        if not dry_run:
            await admin.alter_group_offsets(group_id, {move.partition: move.after for move in found})
        return found

    found = broker.ask(query)
    if broker.as_json:
        print_json(
            [
                {
                    "partition": f"{p.topic}:{p.partition}",
                    "before": before,
                    "after": after,
                    "remark": remark,
                    "dry_run": dry_run,
                }
                for p, before, after, remark in found
            ]
        )
        return
    click.echo(group_text.moves_text(found))
    done = "Nothing was changed; without --dry-run" if dry_run else "Done:"
    continues = "would continue" if dry_run else "continues"
    click.echo(f"{done} group {group_id!r} {continues} there, on {counted(len(found), 'partition')}.", err=True)


def one_way(how: dict[str, Any]) -> tuple[str, int]:
    """The chosen option, with its number."""
    given = [(name, int(value)) for name, value in how.items() if value is not None and value is not False]
    if len(given) != 1:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in how)
        raise click.UsageError(f"give exactly one of {names}")
    return given[0]


async def _refuse_if_read(admin: "Admin", group_id: str, bootstrap: str) -> None:
    """Refuse a group with members: they would commit their own offsets again. A new group is allowed."""
    found = (await admin.describe_groups(group_id))[group_id]
    if found.state == "Dead":
        await refuse_share_group(admin, group_id, "reset")
    if found.members or found.state not in ("Empty", "Dead"):
        from fencepost.cli.plain_text import counted
        from fencepost.client import KafkaError

        raise KafkaError(
            f"group {group_id!r} is {found.state} with {counted(len(found.members), 'member')}: stop them first\n"
            f"  list them: {command_for(bootstrap, 'group', 'describe', group_id)}"
        )
