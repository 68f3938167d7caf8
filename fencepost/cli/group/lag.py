"""`fencepost group lag`: the number of records that a group has still to read."""

from typing import TYPE_CHECKING, Any

import click

from fencepost.cli.completion.names import complete_groups
from fencepost.cli.connect import Broker, broker_options, fail, print_json
from fencepost.cli.group import text as group_text
from fencepost.cli.group.known import known

if TYPE_CHECKING:
    from fencepost.client.admin import Admin

MIB = 1 << 20


@click.command()
@click.argument("group_ids", metavar="GROUP...", nargs=-1, shell_complete=complete_groups)
@click.option("--all", "everyone", is_flag=True, help="All groups, except share groups.")
@click.option(
    "--read",
    "read_mib",
    type=click.FloatRange(min=0),
    default=32.0,
    show_default=True,
    metavar="MIB",
    help="Read at most this much per group for counting; 0 counts offsets.",
)
@broker_options
def lag(group_ids: tuple[str, ...], everyone: bool, read_mib: float, broker: Broker) -> None:
    """Show how many records a group has still to read, by partition.

    LAG counts the records that a read_committed consumer will get. It does not count transaction markers, aborted
    records and offsets without a record. The command reads the batches to count them, up to --read MiB for each group,
    the partitions with the smallest lag first. LAG of the other partitions is the number of offsets, an upper bound,
    written as <=N.

    HELD BACK are the offsets that an open transaction holds back: fencepost txn why TOPIC:PARTITION names it.

    \b
    Examples:
      fencepost group lag billing
      fencepost group lag --all --read 0 --json
    """
    if everyone == bool(group_ids):
        raise click.UsageError("name one or more groups, or use --all")

    async def query(admin: "Admin") -> Any:
        names = list(group_ids)
        if everyone:  # a share group has no committed offsets: its records are taken one by one
            names = [one.group_id for one in await admin.list_groups() if one.type.lower() != "share"]
        found = {}
        for name in names:
            if not everyone:
                await known(admin, name)
            found[name] = await admin.describe_group_lag(name, count_bytes=round(read_mib * MIB))
        return found

    found = broker.ask(query)
    if broker.as_json:
        print_json([group_text.lag_json(name, one) for name, lags in found.items() for one in lags])
        return
    if not any(found.values()):
        click.echo(group_text.no_positions_text(list(found)))
        return
    click.echo(group_text.lag_text(found, read_mib))
    if any(one.lost for lags in found.values() for one in lags):
        fail("records were deleted before their group read them (LOST): the group is slower than the topic's retention")
