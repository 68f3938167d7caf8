"""`fencepost topic move`: partitions move to another broker."""

from typing import TYPE_CHECKING, Any

import click

from fencepost.cli.completion.names import complete_topics
from fencepost.cli.connect import LOOK_SECONDS, Broker, broker_options, print_json, wait_until
from fencepost.cli.plain_text import counted, places
from fencepost.protocol.topics import TopicPartition

if TYPE_CHECKING:
    from fencepost.client.admin import Admin

LOOKS = 50


@click.command(short_help="Move partitions to another core.")
@click.argument("name", metavar="TOPIC", shell_complete=complete_topics)
@click.option(
    "--partition",
    "-p",
    "numbers",
    multiple=True,
    required=True,
    type=click.IntRange(min=0),
    metavar="N",
    help="The partition to move; repeatable.",
)
@click.option("--to", "target", type=int, required=True, metavar="BROKER", help="The id of the broker to move to.")
@broker_options
def move(name: str, numbers: tuple[int, ...], target: int, broker: Broker) -> None:
    """Move partitions of a topic to another broker, and wait until it leads them. Clients go on meanwhile.

    With several cores each core is a broker; the ids are those that describe shows. Their records are not copied. If
    you end the command early, the moves go on.

    \b
    Examples:
      fencepost topic move orders --partition 3 --to 1
      fencepost topic move orders -p 0 -p 1 --to 2
    """

    async def query(admin: "Admin") -> dict[int, int]:
        import trio

        from fencepost.client import KafkaError

        wanted = [TopicPartition(name, number) for number in dict.fromkeys(numbers)]
        found = (await admin.describe_topics(name))[name].partitions
        await admin.alter_partition_reassignments({tp: [target] for tp in wanted})

        async def done() -> bool:
            return not await admin.list_partition_reassignments(wanted)

        late = (
            f"the move takes longer than {broker.timeout_s:g} s, and continues: `fencepost cluster reassignments` shows"
            " what is left, and the broker's log what it waits for"
        )
        await wait_until(done, broker.timeout_s, late)
        for _ in range(LOOKS):
            now = (await admin.describe_topics(name))[name].partitions
            stayed = [tp for tp in wanted if now[tp.partition].leader != target]
            if not stayed:
                break
            await trio.sleep(LOOK_SECONDS)  # the broker that answers may not know it yet
        else:
            raise KafkaError(f"{places(stayed)} did not move to broker {target}: the move was cancelled")
        return {tp.partition: found[tp.partition].leader for tp in wanted}

    before: dict[int, Any] = broker.ask(query)
    if broker.as_json:
        print_json([{"topic": name, "partition": one, "from": was, "to": target} for one, was in before.items()])
        return
    count = sum(was != target for was in before.values())
    click.echo(f"{counted(count, 'partition')} of topic {name!r} moved to broker {target}.")
