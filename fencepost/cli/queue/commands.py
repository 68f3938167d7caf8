"""`fencepost queue`: share groups, the records that they hold, and why a record does not move."""

from typing import TYPE_CHECKING, Any

import click

from fencepost.cli.completion.names import complete_groups, complete_topics
from fencepost.cli.connect import Broker, broker_options, print_json
from fencepost.cli.plain_text import counted, json_value, now_ms, table
from fencepost.cli.queue import text as queue_text
from fencepost.cli.queue.dead_letters import dead_letters, redrive
from fencepost.cli.queue.delete import delete
from fencepost.cli.queue.reset import reset
from fencepost.protocol.topics import TopicPartition

if TYPE_CHECKING:
    from fencepost.client.admin import Admin

STATES = ("Empty", "Stable", "Dead")


@click.group()
def queue() -> None:
    """Show share groups and the records that they hold, move or delete them.

    The members of a share group read the same partitions, and each record goes to one of them (KIP-932).

    \b
    How much is there to do?
      fencepost queue list
    Who holds records, and how often were they delivered?
      fencepost queue describe workers
    Why does this record not move?
      fencepost queue why workers orders 0 1042
    Do it again from the beginning, or skip what is there?
      fencepost queue reset workers orders --to-earliest --dry-run
    Which records were given up? Put them back?
      fencepost queue dead-letters workers
      fencepost queue redrive workers

    What Kafka's protocol has works with Apache Kafka 4.2 and newer. The states of single records are known of a
    fencepost broker only. Settings: fencepost config set group GROUP NAME=VALUE. Exit code 0: done; 1: failed or
    refused; 2: wrong usage.
    """


@queue.command("list")
@click.option("--state", "states", multiple=True, type=click.Choice(STATES, case_sensitive=False), help="Repeatable.")
@broker_options
def list_command(states: tuple[str, ...], broker: Broker) -> None:
    """List share groups with their members and their depth.

    DEPTH is the number of offsets up to the high watermark that are neither accepted nor archived. "?": a broker does
    not know it, or your user may not see it.

    \b
    Example:
      fencepost queue list --state Stable
    """

    async def query(admin: "Admin") -> Any:
        from fencepost.client.admin.client import parts_of
        from fencepost.client.admin.queues import list_queues

        return await list_queues(parts_of(admin), await admin.list_groups(states=states, types="share"))

    found = broker.ask(query)
    if broker.as_json:
        print_json(json_value(found))
        return
    if found:
        rows = [(*one[:2], *("?" if number is None else number for number in one[2:])) for one in found]
        click.echo(table(("GROUP", "STATE", "MEMBERS", "PARTITIONS", "DEPTH"), rows))
    click.echo(counted(len(found), "share group"), err=True)


@queue.command("describe", short_help="Show one share group: depth, members, and the records in flight.")
@click.argument("group_id", metavar="GROUP", shell_complete=complete_groups)
@broker_options
def describe_command(group_id: str, broker: Broker) -> None:
    """Show one share group: its depth by partition, its members and what they hold, and its own settings.

    START is the first offset that is not done, and NEXT the first one that was never acquired. Between them records
    are HELD by members, WAIT for their next delivery, are PENDING in an open transaction, or are DONE. OLDEST is the
    age of the record at START.

    \b
    Example:
      fencepost queue describe workers
    """

    async def query(admin: "Admin") -> Any:
        from fencepost.client.admin.client import parts_of
        from fencepost.client.admin.queues import describe_queue

        return await describe_queue(parts_of(admin), group_id)

    found = broker.ask(query)
    broker.print(queue_text.queue_json(found), queue_text.describe_text(found, now_ms(), broker.bootstrap))


@queue.command("why", short_help="Show why a share group does not get a record.")
@click.argument("group_id", metavar="GROUP", shell_complete=complete_groups)
@click.argument("topic", shell_complete=complete_topics)
@click.argument("partition", type=click.IntRange(min=0))
@click.argument("offset", type=click.IntRange(min=0))
@broker_options
def why_command(group_id: str, topic: str, partition: int, offset: int, broker: Broker) -> None:
    """Show what has become of a record in a share group, and what it waits for.

    The record is available, held by a member, acknowledged in an open transaction, accepted, archived, not visible
    before its own transaction has ended, or beyond the limit of records in flight. Of Apache Kafka only the start
    offset is known.

    \b
    Example:
      fencepost queue why workers orders 0 1042
    """
    place = TopicPartition(topic, partition)

    async def query(admin: "Admin") -> Any:
        from fencepost.client.admin.client import parts_of
        from fencepost.client.admin.last_stable_offset import check_exists
        from fencepost.client.admin.queues import why_record

        await check_exists(parts_of(admin), place)
        return await why_record(parts_of(admin), group_id, place, offset)

    found = broker.ask(query)
    facts = {"group": group_id, "partition": f"{topic}:{partition}", "offset": offset}
    broker.print({**facts, **json_value(found)}, queue_text.why_text(found, place, offset, broker.bootstrap))


for command in (dead_letters, delete, redrive, reset):
    queue.add_command(command)
