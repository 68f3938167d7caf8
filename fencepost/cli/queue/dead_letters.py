"""`fencepost queue dead-letters` and `redrive`: records that share groups gave up, and their way back (KIP-1191)."""

from typing import TYPE_CHECKING, Any

import click

from fencepost.cli.completion.names import complete_groups, complete_topics
from fencepost.cli.connect import Broker, broker_options, fail, print_json
from fencepost.cli.plain_text import cell, counted, moment, table
from fencepost.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from fencepost.client import Client
    from fencepost.client.redrive import DeadLetter, Redriven

HEAD = ("PARTITION", "OFFSET", "DELIVERIES", "REASON", "COPY", "WRITTEN")
ENABLED = "errors.deadletterqueue.group.enable"
FIRST = 5
"""How many records of a partition a dry run names."""
_TOPIC = click.option(
    "--topic",
    shell_complete=complete_topics,
    help="The dead-letter topic. [default: errors.deadletterqueue.topic.name of the group]",
)


@click.command("dead-letters", short_help="List the records that a share group gave up.")
@click.argument("group_id", metavar="GROUP", shell_complete=complete_groups)
@_TOPIC
@broker_options
def dead_letters(group_id: str, topic: str | None, broker: Broker) -> None:
    """List the records that a share group gave up, from its dead-letter topic; redriven ones, too.

    COPY: whether the dead letter has the key and the value of its record.

    \b
    Example:
      fencepost queue dead-letters workers
    """

    async def query(kafka: "Client") -> "list[DeadLetter]":
        from fencepost.client.redrive import dead_letters as letters_of

        return [one async for one in letters_of(kafka, await _topic_of(kafka, group_id, topic), group_id)]

    found = broker.run("queue", query)
    if broker.as_json:
        print_json([_as_json(one) for one in found])
        return
    if found:
        click.echo(table(HEAD, [_row(one) for one in found]))
    click.echo(counted(len(found), "dead letter"), err=True)


@click.command(short_help="Send the records that a share group gave up again.")
@click.argument("group_id", metavar="GROUP", shell_complete=complete_groups)
@_TOPIC
@click.option("--dry-run", is_flag=True, help="Say what would happen. Change nothing.")
@broker_options
def redrive(group_id: str, topic: str | None, dry_run: bool, broker: Broker) -> None:
    """Send the records of a share group's dead letters again, to the topics and partitions where they were.

    Each dead letter is redriven once, however often this runs, and also if it is interrupted: the position in the
    dead-letter topic is committed in the transaction that sends the records. It is that of the group
    redrive.TOPIC.GROUP, and expires after offsets.retention.minutes without a redrive. All groups that read the
    topics of the records get them again, with isolation read_committed each once.

    \b
    Examples:
      fencepost queue redrive workers --dry-run
      fencepost queue redrive workers
    """

    async def work(kafka: "Client") -> "tuple[str, Redriven]":
        from fencepost.client.redrive import redrive as send_again

        letters = await _topic_of(kafka, group_id, topic)
        return letters, await send_again(kafka, letters, group_id, dry_run=dry_run)

    letters, done = broker.run("queue", work)
    lost, sent = [_as_json(one) for one in done.lost], sum(map(len, done.sent.values()))
    as_object = {
        "dead_letter_topic": letters,
        "sent": sent,
        "partitions": {f"{place.topic}:{place.partition}": len(done.sent[place]) for place in sorted(done.sent)},
        "lost": lost,
        "dry_run": dry_run,
    }
    text = f"{'Would send' if dry_run else 'Sent'} {counted(sent, 'record')} of {cell(letters)} again."
    if dry_run and sent:
        text = f"{_plan(done)}\n{text}"
    broker.print(as_object, text)
    if lost:
        places = ", ".join(f"{cell(one.partition.topic)}:{one.partition.partition}@{one.offset}" for one in done.lost)
        fail(
            f"{counted(len(lost), 'record')} cannot be sent again: {places}",
            "Their topic does not have them any more, and their dead letters have no copies.",
            "Set errors.deadletterqueue.copy.record.enable=true on the group.",
        )


def _plan(done: "Redriven") -> str:
    rows = []
    for place, offsets in sorted(done.sent.items()):
        first = ", ".join(map(str, sorted(offsets)[:FIRST])) + (", ..." if len(offsets) > FIRST else "")
        rows.append((f"{cell(place.topic)}:{place.partition}", len(offsets), first))
    return table(("TO", "RECORDS", "OFFSETS"), rows)


async def _topic_of(kafka: "Client", group_id: str, topic: str | None) -> str:
    """The dead-letter topic; a missing one fails at once, because consumers wait for a new topic."""
    from fencepost.client.admin import ItemsFailedError
    from fencepost.client.redrive import dead_letter_topic

    found = topic or await dead_letter_topic(kafka, group_id)
    if found is None:
        fail(
            f"the group {cell(group_id)!r} has no dead-letter topic",
            "Name one with --topic, or set errors.deadletterqueue.topic.name on the group.",
        )
    try:
        async with kafka.admin() as admin:
            await admin.describe_topics(found)
    except ItemsFailedError as failed:
        if failed.errors[found].code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        fail(
            f"the dead-letter topic {cell(found)!r} does not exist, or is hidden from you: it has no dead letters",
            f"Create it with {ENABLED}=true: without it, records are dropped unless the broker may create it.",
        )
    return found


def _row(one: "DeadLetter") -> tuple[object, ...]:
    place = f"{one.partition.topic}:{one.partition.partition}"
    copied = "yes" if one.is_copy else "no"
    return place, one.offset, one.delivery_count, one.message, copied, moment(one.letter.timestamp_ms)


def _as_json(one: "DeadLetter") -> dict[str, Any]:
    return {
        "partition": f"{one.partition.topic}:{one.partition.partition}",
        "offset": one.offset,
        "delivery_count": one.delivery_count,
        "reason": one.message,
        "is_copy": one.is_copy,
        "written": moment(one.letter.timestamp_ms),
    }
