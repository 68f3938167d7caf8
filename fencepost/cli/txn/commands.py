"""`fencepost txn`: show transactions, find those that hold readers back, and abort them."""

from typing import TYPE_CHECKING, Any

import click

from fencepost.cli.completion.names import complete_topics, complete_transactional_ids
from fencepost.cli.connect import Broker, broker_options, print_json
from fencepost.cli.parameters import SecondsType
from fencepost.cli.plain_text import counted, json_value, now_ms, table
from fencepost.cli.txn.end import abort, hanging
from fencepost.cli.txn.watch import described, watch
from fencepost.protocol.topics import TopicPartition

if TYPE_CHECKING:
    from fencepost.client.admin import Admin
    from fencepost.protocol.topics import TopicPartition

STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")


class PlaceType(click.ParamType):  # type: ignore[type-arg]
    """TOPIC:PARTITION."""

    name = "topic:partition"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> "TopicPartition":

        topic, colon, number = str(value).rpartition(":")
        if not colon or not topic or not (number.isascii() and number.isdigit()):
            self.fail(f"{value!r} is not a partition; write it as TOPIC:PARTITION, for example orders:3", param, ctx)
        return TopicPartition(topic, int(number))


PLACE = PlaceType()


@click.group()
def txn() -> None:
    """Show transactions, and end those that hold readers back.

    \b
    A read_committed consumer makes no progress?
      fencepost txn why orders:3        which transaction holds it back, and what to do
    A producer was fenced, or got INVALID_PRODUCER_EPOCH?
      fencepost txn describe ID         which client fenced it, when, with which request
    Which transactions are open?
      fencepost txn watch               a view that refreshes itself

    All commands speak Kafka's protocol and work with Apache Kafka too. Only fencepost reports client addresses and the
    causes of fencing. Exit code 0: done; 1: failed or refused; 2: wrong usage.
    """


@txn.command("list")
@click.option("--state", "states", multiple=True, type=click.Choice(STATES, case_sensitive=False), help="Repeatable.")
@click.option(
    "--producer-id",
    "producer_ids",
    multiple=True,
    type=int,
    help="Show only ids that have this producer id now; repeatable.",
)
@click.option("--pattern", help="Show only ids that match this regular expression as a whole (KIP-1152).")
@click.option(
    "--longer-than",
    "seconds",
    type=SecondsType(),
    metavar="DURATION",
    help="Show only transactions open for this many seconds, or for a duration such as 5m.",
)
@broker_options
def list_command(
    states: tuple[str, ...], producer_ids: tuple[int, ...], pattern: str | None, seconds: float | None, broker: Broker
) -> None:
    """List transactional ids with their state. OPEN FOR is how long ago an open transaction began.

    \b
    Examples:
      fencepost txn list --state Ongoing --longer-than 5m
      fencepost txn list --pattern 'billing-.*' --json
    """
    from fencepost.cli.txn import text as txn_text

    async def query(admin: "Admin") -> Any:
        found = await admin.list_transactions(
            states=states, producer_ids=producer_ids, running_longer_than=seconds, pattern=pattern
        )
        began = {one.transactional_id: one.started for one in await described(admin, found)}
        return found, began

    found, began = broker.ask(query)
    if broker.as_json:
        print_json([{**json_value(one), "started": json_value(began.get(one.transactional_id))} for one in found])
        return
    if found:
        rows = [(*one, txn_text.open_for(began.get(one.transactional_id), now_ms())) for one in found]
        click.echo(table(("TRANSACTIONAL.ID", "PRODUCER", "STATE", "OPEN FOR"), rows))
    click.echo(f"{counted(len(found), 'transactional id')}", err=True)


@txn.command("describe")
@click.argument("transactional_id", shell_complete=complete_transactional_ids)
@broker_options
def describe_command(transactional_id: str, broker: Broker) -> None:
    """Show one transactional id: its producer, its open transaction, its client, and who was fenced and why.

    The history is kept in the broker's memory: the last eight changes and refusals since it started.
    """
    from fencepost.cli.txn import text as txn_text

    async def query(admin: "Admin") -> Any:
        return (await admin.describe_transactions(transactional_id))[transactional_id]

    found = broker.ask(query)
    broker.print(json_value(found), txn_text.describe_text(found, now_ms()))


@txn.command("producers")
@click.argument("partition", type=PLACE, shell_complete=complete_topics)
@click.option("--open", "only_open", is_flag=True, help="Show only producers with an open transaction.")
@broker_options
def producers_command(partition: "TopicPartition", only_open: bool, broker: Broker) -> None:
    """Show the producers that a partition knows, and the first offsets of their open transactions.

    \b
    Example:
      fencepost txn producers orders:3 --open
    """
    from fencepost.cli.txn import text as txn_text
    from fencepost.client.admin.client import parts_of
    from fencepost.client.admin.last_stable_offset import check_exists

    async def query(admin: "Admin") -> Any:
        await check_exists(parts_of(admin), partition)
        return (await admin.describe_producers(partition))[partition]

    found = broker.ask(query)
    found = [producer for producer in found if not only_open or producer.transaction_start_offset is not None]
    broker.print(json_value(sorted(found)), txn_text.producers_text(found, now_ms()))


@txn.command("why")
@click.argument("partition", type=PLACE, shell_complete=complete_topics)
@broker_options
def why_command(partition: "TopicPartition", broker: Broker) -> None:
    """Show which transaction holds a partition's last stable offset, which groups wait, and what to do.

    read_committed consumers stop at the first offset of the oldest open transaction. The command shows that
    transaction: its producer, its client, its age and its coordinator's state. It also shows the groups that wait, and
    the safe remedy as a command to copy.

    \b
    Example:
      fencepost txn why orders:3
    """
    from fencepost.cli.txn import text as txn_text

    found = broker.ask(lambda admin: admin.describe_last_stable_offset(partition))
    broker.print(json_value(found), txn_text.why_text(found, now_ms(), broker.bootstrap))


for command in (abort, hanging, watch):
    txn.add_command(command)
