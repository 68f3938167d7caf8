"""`fencepost txn abort` and `fencepost txn hanging`: abort transactions, on request only."""

from typing import TYPE_CHECKING, Any

import click

from fencepost.cli.completion.names import complete_topics, complete_transactional_ids
from fencepost.cli.connect import Broker, broker_options, command_for, fail, print_json
from fencepost.cli.parameters import SecondsType
from fencepost.cli.plain_text import age, json_value, now_ms, places, table
from fencepost.client import KafkaError
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition

if TYPE_CHECKING:
    from fencepost.client.admin import Admin

NOT_HANGING = "refused: its producer is alive, or the transaction has ended"


@click.command()
@click.argument("transactional_id", shell_complete=complete_transactional_ids)
@click.option("--dry-run", is_flag=True, help="Say what would happen. Change nothing.")
@click.option(
    "--even-two-phase", is_flag=True, help="Abort even if an outside coordinator decides the outcome (KIP-939)."
)
@broker_options
def abort(transactional_id: str, dry_run: bool, even_two_phase: bool, broker: Broker) -> None:
    """Abort the open transaction of a transactional id, and fence its producer.

    The command raises the epoch (InitProducerId). All partitions get an ABORT marker, offsets in the transaction are
    discarded, and the old producer is fenced: restart it. A transaction whose outcome is decided cannot be aborted.

    For a transaction that no coordinator knows: fencepost txn hanging --repair.

    \b
    Examples:
      fencepost txn abort billing-2 --dry-run
      fencepost txn abort billing-2
    """
    from fencepost.client.admin.last_stable_offset import NO_TIMEOUT_MS

    async def query(admin: "Admin") -> Any:
        found = (await admin.describe_transactions(transactional_id))[transactional_id]
        if found.state != "Ongoing":
            return found, None
        if dry_run or (found.timeout_ms == NO_TIMEOUT_MS and not even_two_phase):
            return found, None
        return found, await admin.fence_producers(transactional_id)

    found, fenced = broker.ask(query)
    if found.state == "Ongoing" and found.timeout_ms == NO_TIMEOUT_MS and not even_two_phase:
        fail(
            f"{transactional_id!r} is part of a two-phase commit: the program that owns it must complete it.",
            "If the outside database has NOT committed its half: --even-two-phase",
        )
    if broker.as_json:
        print_json({"before": json_value(found), "aborted": fenced is not None, "dry_run": dry_run})
        return
    if found.state in ("PrepareCommit", "PrepareAbort"):
        how = "committed" if found.state == "PrepareCommit" else "aborted"
        fail(f"{transactional_id!r} is {how} already; its markers are being written. Nothing was done.")
    if found.state != "Ongoing":
        click.echo(f"{transactional_id!r} has no open transaction (it is in {found.state}). Nothing was done.")
        return
    on = places(found.partitions)
    held = f"{found.producer_id}:{found.producer_epoch}"
    if dry_run:
        click.echo(f"Would abort the transaction of {transactional_id!r} on {on}, and fence producer {held}.")
    else:
        click.echo(f"Aborted the transaction of {transactional_id!r} on {on}; producer {held} is fenced.")


@click.command()
@click.option("--topic", shell_complete=complete_topics, help="Look at this topic only.")
@click.option("--partition", type=click.IntRange(min=0), help="Look at this partition of it only.")
@click.option(
    "--older-than",
    "seconds",
    type=SecondsType(),
    metavar="DURATION",
    help="Seconds, or a duration such as 2h; by the timestamps of its records."
    " [default: the broker's transaction.max.timeout.ms]",
)
@click.option("--repair", is_flag=True, help="Abort the hanging transactions. Without it, change nothing.")
@broker_options
def hanging(topic: str | None, partition: int | None, seconds: float | None, repair: bool, broker: Broker) -> None:
    """Find hanging transactions, and with --repair abort them.

    A transaction hangs when a partition holds it open, it is older than any transaction may get, and its coordinator
    does not know it, or not with this partition. It holds read_committed consumers back without end. A fencepost broker
    looks for hanging transactions (transaction.hanging.check.interval.ms) and reports them in its log.

    A fencepost broker checks again when it writes the marker, and rejects the request if a coordinator owns the
    transaction. So a live transaction is never aborted. Apache Kafka does not check.
    """
    if partition is not None and topic is None:
        raise click.UsageError("--partition needs --topic")

    async def query(admin: "Admin") -> Any:
        places = await _places(admin, topic, partition)
        found = await admin.find_hanging_transactions(places, older_than=seconds)
        return (found, [await _repair(admin, one, seconds) for one in found] if repair else [None] * len(found))

    found, refused = broker.ask(query)
    if broker.as_json:
        print_json(
            [
                {**json_value(one), "aborted": repair and error is None, "refused": error}
                for one, error in zip(found, refused, strict=True)
            ]
        )
    elif not found:
        click.echo("No transaction hangs.")
    else:
        click.echo(
            table(
                ("PARTITION", "PRODUCER", "FROM OFFSET", "LAST WRITE", "WHY IT HANGS", "DONE"),
                [_row(one, error, repair) for one, error in zip(found, refused, strict=True)],
            )
        )
        if not repair:
            click.echo(f"To abort them: {_repair_command(broker.bootstrap, topic, partition, seconds)}")
    if any(refused):
        fail("some were not aborted; `fencepost txn why TOPIC:PARTITION` explains each")


async def _places(admin: "Admin", topic: str | None, partition: int | None) -> Any:
    if topic is None:
        return None
    if partition is not None:
        return [TopicPartition(topic, partition)]
    described = await admin.describe_topics(topic)
    return [TopicPartition(topic, number) for number in range(len(described[topic].partitions))]


async def _repair(admin: "Admin", one: Any, seconds: float | None) -> str | None:
    """Abort one if it still hangs; returns the reason if it was rejected, otherwise None."""
    try:
        if one not in await admin.find_hanging_transactions([one.partition], older_than=seconds):
            return NOT_HANGING
        await admin.abort_transaction(one.partition, one.producer)
    except KafkaError as error:
        if error.code is ErrorCode.INVALID_TXN_STATE:
            return NOT_HANGING
        return str(error)
    return None


def _row(one: Any, refused: str | None, repair: bool) -> tuple[object, ...]:
    done = refused or ("aborted" if repair else "nothing")
    last = f"{age((now_ms() - one.producer.last_timestamp_ms) / 1000)} ago"
    held = f"{one.producer.producer_id}:{one.producer.producer_epoch}"
    return (places([one.partition]), held, one.first_offset, last, one.why, done)


def _repair_command(bootstrap: str, topic: str | None, partition: int | None, seconds: float | None) -> str:
    words = ["txn", "hanging", "--repair"]
    words += ["--topic", topic] if topic is not None else []
    words += ["--partition", str(partition)] if partition is not None else []
    words += ["--older-than", f"{seconds:g}"] if seconds is not None else []
    return command_for(bootstrap, *words)
