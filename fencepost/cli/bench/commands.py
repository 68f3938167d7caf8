"""`fencepost bench`: how much a broker and this machine's client do together."""

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from fencepost.cli.completion.names import complete_topics
from fencepost.cli.connect import Broker, broker_options, print_json
from fencepost.cli.progress import progress_bar

if TYPE_CHECKING:
    from fencepost.cli.bench.measuring import Result
    from fencepost.client import Client

_bytes_option = click.option(
    "--bytes", "size_bytes", type=click.IntRange(min=1), default=100, show_default=True, help="Bytes of a record."
)


@click.group()
def bench() -> None:
    """Measure how much a broker and the client on this machine do together.

    The client is fencepost's, with the options of -X. It uses one core, so a quick broker waits for it: more of these
    commands at once show what the broker can do.
    """


@bench.command(short_help="Send records as fast as they are acknowledged.")
@click.argument("topic", shell_complete=complete_topics)
@click.option(
    "--records", "-n", type=click.IntRange(min=1), default=1_000_000, show_default=True, help="Records to send."
)
@_bytes_option
@broker_options
def produce(topic: str, records: int, size_bytes: int, broker: Broker) -> None:
    """Send records as fast as they are acknowledged (idempotence, acks=all).

    p50 and p99 are the latencies of single records, which are sent beside the others each 10 ms.

    \b
    Examples:
      fencepost bench produce load --records 200000 --bytes 1000
      fencepost bench produce load -X compression.type=zstd -X batch.size=1000000
    """
    from fencepost.cli.bench import measuring

    with progress_bar("", broker.as_json, show_pos=True) as begin:
        advance = begin(records)
        found = _measure(broker, lambda kafka: measuring.produce(kafka, topic, records, size_bytes, advance))
    _report(broker, found, "records")


@bench.command(short_help="Read records as fast as they come.")
@click.argument("topic", shell_complete=complete_topics)
@click.option(
    "--records", "-n", type=click.IntRange(min=1), default=1_000_000, show_default=True, help="Records to read."
)
@broker_options
def consume(topic: str, records: int, broker: Broker) -> None:
    """Read a topic from its beginning (read_committed), up to this number of records, or to its end.

    \b
    Example:
      fencepost bench consume load
    """
    from fencepost.cli.bench import measuring

    with progress_bar("", broker.as_json, show_pos=True) as begin:
        advance = begin(records)
        found = _measure(broker, lambda kafka: measuring.consume(kafka, topic, records, advance))
    _report(broker, found, "records")


@bench.command(short_help="Commit transactions, one after the other.")
@click.argument("topic", shell_complete=complete_topics)
@click.option(
    "--transactions", "-n", type=click.IntRange(min=1), default=500, show_default=True, help="Transactions to commit."
)
@click.option("--size", type=click.IntRange(min=1), default=10, show_default=True, help="Records of a transaction.")
@_bytes_option
@broker_options
def txn(topic: str, transactions: int, size: int, size_bytes: int, broker: Broker) -> None:
    """Commit transactions of one producer, one after the other. p50 and p99 are those of whole transactions.

    \b
    Example:
      fencepost bench txn load --transactions 1000 --size 20
    """
    from fencepost.cli.bench import measuring

    transactional_id = f"fencepost-bench-{uuid.uuid4()}"
    with progress_bar("", broker.as_json, show_pos=True) as begin:
        advance = begin(transactions)
        found = _measure(
            broker,
            lambda kafka: measuring.transact(kafka, topic, transactions, size, size_bytes, transactional_id, advance),
        )
    _report(broker, found, "transactions")


def _measure(broker: Broker, load: "Callable[[Client], Any]") -> "Result":
    from fencepost.cli.errors import first_of

    async def work(kafka: "Client") -> "Result":
        try:
            result: Result = await load(kafka)
        except BaseExceptionGroup as group:
            raise first_of(group) from None
        return result

    found: Result = broker.run("bench", work)
    return found


def _report(broker: Broker, found: "Result", what: str) -> None:
    facts = found.facts(what)
    if broker.as_json:
        print_json(facts)
        return
    text = f"{found.done} {what} in {found.seconds:.2f} s: {facts[f'{what}_per_second']:.0f} a second"
    text += f", {facts['mb_per_second']} MB a second" if "mb_per_second" in facts else ""
    text += f", p50 {facts['p50_ms']} ms, p99 {facts['p99_ms']} ms" if "p50_ms" in facts else ""
    click.echo(text)
