"""`fencepost topic offsets` and `trim`: first and last offsets of partitions, and deletion of the oldest records."""

from typing import TYPE_CHECKING, Any

import click

from fencepost.cli.completion.names import complete_topics
from fencepost.cli.connect import Broker, broker_options, fail, print_json
from fencepost.cli.parameters import PLACE, DurationType, MomentType, Place
from fencepost.cli.places import partitions_of
from fencepost.cli.plain_text import now_ms
from fencepost.cli.topic import offsets_text as text
from fencepost.cli.topic.offsets_text import Cut

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fencepost.client.admin import Admin, OffsetInfo
    from fencepost.protocol.topics import TopicPartition

NONE_SO_LATE = -1


@click.command(short_help="Show where partitions begin and end.")
@click.argument(
    "places", metavar="TOPIC[:PARTITION]...", nargs=-1, required=True, type=PLACE, shell_complete=complete_topics
)
@click.option(
    "--at", "moment", type=MomentType(), metavar="ISO", help="Show the first record of this time or later too."
)
@broker_options
def offsets(places: tuple[Place, ...], moment: int | None, broker: Broker) -> None:
    """Show where partitions begin and end.

    FIRST is the first offset. LSO is the last stable offset: read_committed consumers get the records below it. END is
    the high watermark, after the last record. HELD BACK are the offsets between LSO and END: fencepost txn why names
    the transaction that holds them. OFFSETS counts from FIRST to END, with markers and compacted records.

    \b
    Examples:
      fencepost topic offsets orders
      fencepost topic offsets orders:3 --at 2026-11-21T06:00:00
    """

    async def query(admin: "Admin") -> Any:
        wanted = await partitions_of(admin, places)
        first = await admin.list_offsets(wanted, at="earliest")
        stable = await admin.list_offsets(wanted)
        end = await admin.list_offsets(wanted, isolation="read_uncommitted")
        late = {} if moment is None else await admin.list_offsets(wanted, at=moment, isolation="read_uncommitted")
        return [text.Extent(p, first[p].offset, stable[p].offset, end[p].offset, late.get(p)) for p in wanted]

    found = broker.ask(query)
    broker.print(
        [text.extent_json(one, moment is not None) for one in found], text.extents_text(found, moment is not None)
    )


@click.command(short_help="Delete the oldest records (DeleteRecords).")
@click.argument(
    "places", metavar="TOPIC[:PARTITION]...", nargs=-1, required=True, type=PLACE, shell_complete=complete_topics
)
@click.option("--to", "offset", type=click.IntRange(min=0), metavar="N", help="Delete all records below this offset.")
@click.option("--all", "everything", is_flag=True, help="Delete all records up to the high watermark.")
@click.option("--before", "moment", type=MomentType(), metavar="ISO", help="Delete all records before this time; UTC.")
@click.option(
    "--older-than", "age_ms", type=DurationType(), metavar="2d12h", help="Delete all records that are older than this."
)
@click.option("--dry-run", is_flag=True, help="Say what would be deleted. Delete nothing.")
@broker_options
def trim(
    places: tuple[Place, ...],
    offset: int | None,
    everything: bool,
    moment: int | None,
    age_ms: int | None,
    dry_run: bool,
    broker: Broker,
) -> None:
    """Delete the oldest records of partitions: all before an offset or a time. This cannot be undone.

    A time deletes all records before the first record of that time or later; if no record is that late, all records. A
    topic that is only compacted is refused. The request is Kafka's DeleteRecords.

    \b
    Examples:
      fencepost topic trim orders --older-than 30d --dry-run
      fencepost topic trim orders:3 --to 1042
      fencepost topic trim orders-test --all
    """
    ways = [way for way in (offset, True if everything else None, moment, age_ms) if way is not None]
    if len(ways) != 1:
        raise click.UsageError("give exactly one of --to, --all, --before and --older-than")

    async def query(admin: "Admin") -> Any:
        since = moment if age_ms is None else now_ms() - age_ms
        return await _trim(admin, await partitions_of(admin, places), offset, since, dry_run)

    cuts = broker.ask(query)
    if broker.as_json:
        print_json([text.cut_json(cut, dry_run) for cut in cuts])
    else:
        click.echo(text.cuts_text(cuts))
        if dry_run:
            click.echo("Nothing was deleted (--dry-run).", err=True)
    if any(cut.error for cut in cuts):
        fail("some partitions were not trimmed; `fencepost topic offsets TOPIC` shows their offsets")


async def _trim(
    admin: "Admin", wanted: "list[TopicPartition]", offset: int | None, since: int | None, dry_run: bool
) -> list[Cut]:
    from fencepost.client.admin import ItemsFailedError

    first = await admin.list_offsets(wanted, at="earliest")
    end = await admin.list_offsets(wanted, isolation="read_uncommitted")
    late: Mapping[TopicPartition, OffsetInfo] = {}
    if since is not None:
        late = await admin.list_offsets(wanted, at=since, isolation="read_uncommitted")
    places = {}
    for partition in wanted:
        to = end[partition].offset if offset is None else offset
        if partition in late and late[partition].offset != NONE_SO_LATE:
            to = late[partition].offset
        places[partition] = max(to, first[partition].offset)
    moving = {partition: to for partition, to in places.items() if to > first[partition].offset}
    errors: Mapping[Any, Any] = {}
    beyond = {p: f"it ends at {end[p].offset}" for p, to in moving.items() if to > end[p].offset}
    if moving and not dry_run:
        try:
            await admin.delete_records({p: to for p, to in moving.items() if p not in beyond})
        except ItemsFailedError as some:
            errors = some.errors
    messages = {**{p: str(error) for p, error in errors.items()}, **beyond}
    return [Cut(p, first[p].offset, places[p], messages.get(p)) for p in wanted]
