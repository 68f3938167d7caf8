"""`fencepost topic`: show, create, change, move, trim and delete topics."""

from typing import TYPE_CHECKING, Any

import click

from fencepost.cli.completion.names import complete_topics
from fencepost.cli.connect import Broker, broker_options, command_for, fail, fail_with, print_json
from fencepost.cli.hints import hints_for
from fencepost.cli.parameters import SETTING, Setting, as_mapping
from fencepost.cli.plain_text import counted
from fencepost.cli.topic import text as topic_text
from fencepost.cli.topic.apply import apply
from fencepost.cli.topic.change import add_partitions, alter
from fencepost.cli.topic.move import move
from fencepost.cli.topic.records import offsets, trim
from fencepost.cli.topic.text import id_of
from fencepost.client import KafkaError
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fencepost.client.admin import Admin, TopicDescription

_NO_SIZES = {
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "they need the right DESCRIBE of the cluster",
    ErrorCode.UNSUPPORTED_VERSION: "the brokers do not report them",
}


@click.group()
def topic() -> None:
    """Create, show, change, move, trim and delete topics.

    \b
    Show topics:
      fencepost topic list
      fencepost topic describe orders        partitions, leaders and settings
      fencepost topic offsets orders         first and last offset of each partition
    Create a topic:
      fencepost topic create orders --partitions 12 --set retention.ms=86400000
    Change many topics at once, from a file, all or none:
      fencepost topic apply topics.toml --dry-run
    Move a partition to another core:
      fencepost topic move orders --partition 3 --to 1
    Delete old records:
      fencepost topic trim orders --before 2026-11-01T00:00:00 --dry-run

    All commands speak Kafka's protocol and work with Apache Kafka too. Exit code 0: done; 1: failed or refused; 2:
    wrong usage.
    """


@topic.command("list")
@click.argument("pattern", required=False, shell_complete=complete_topics)
@click.option("--internal", is_flag=True, help="Show internal topics too, such as __consumer_offsets.")
@broker_options
def list_command(pattern: str | None, internal: bool, broker: Broker) -> None:
    """List topics, or only those whose names match PATTERN, which may hold * and ?.

    SIZE is what all replicas of a topic take on the brokers' disks; a dash if the brokers do not report it.

    \b
    Examples:
      fencepost topic list
      fencepost topic list 'orders-*' --json
    """

    async def query(admin: "Admin") -> Any:
        shown = [one for one in _matching(await admin.describe_topics(), pattern) if internal or not one.internal]
        return shown, *await _sizes(admin, shown, broker.timeout_s / 3)

    shown, sizes, lack = broker.ask(query)
    if broker.as_json:
        print_json([{**topic_text.summary_json(one), "size_bytes": sizes.get(one.name)} for one in shown])
        return
    if shown:
        click.echo(topic_text.list_text(shown, sizes))
    click.echo(counted(len(shown), "topic") + lack, err=True)


async def _sizes(admin: "Admin", topics: "Sequence[TopicDescription]", timeout_s: float) -> tuple[dict[str, int], str]:
    """Bytes of all replicas by topic; none if not all brokers report them in time, and why."""
    import trio

    partitions = [TopicPartition(one.name, number) for one in topics for number in range(len(one.partitions))]
    if not partitions:
        return {}, ""
    directories = None
    try:
        with trio.move_on_after(timeout_s):
            directories = await admin.describe_log_dirs(partitions=partitions)
    except KafkaError as error:
        if error.code in _NO_SIZES:
            return {}, f". No sizes: {_NO_SIZES[error.code]}."
        if not error.retriable:
            raise
    if directories is None:
        return {}, ". No sizes: not all brokers answer."
    sizes: dict[str, int] = {}
    for replicas in (one.replicas for found in directories.values() for one in found):
        for partition, replica in replicas.items():
            sizes[partition.topic] = sizes.get(partition.topic, 0) + replica.size_bytes
    return sizes, ""


def _matching(found: "Mapping[str, TopicDescription]", pattern: str | None) -> "list[TopicDescription]":
    from fnmatch import fnmatchcase

    return [found[name] for name in sorted(found) if pattern is None or fnmatchcase(name, pattern)]


@topic.command("describe", short_help="Show the partitions and settings of topics.")
@click.argument("names", metavar="TOPIC...", nargs=-1, shell_complete=complete_topics)
@click.option(
    "--id",
    "ids",
    multiple=True,
    metavar="ID",
    help="Name a topic by its id, as `topic list --json` shows it; repeatable.",
)
@broker_options
def describe_command(names: tuple[str, ...], ids: tuple[str, ...], broker: Broker) -> None:
    """Show topics: id, partitions with leader and replicas, and the settings that are set on the topic itself.

    \b
    Examples:
      fencepost topic describe orders
      fencepost topic describe orders billing --json
    """
    wanted = references(names, ids)

    async def query(admin: "Admin") -> Any:
        found = await admin.describe_topics(wanted)
        return [(one, await admin.describe_configs(topic=one.name)) for _, one in sorted(found.items())]

    found = broker.ask(query)
    broker.print(
        [topic_text.describe_json(one, configs) for one, configs in found],
        "\n\n".join(topic_text.describe_text(one, configs, broker.bootstrap) for one, configs in found),
    )


def references(names: "Sequence[str]", ids: "Sequence[str]") -> "list[str | bytes]":
    """The names, and the ids as bytes. Raises UsageError."""
    if not names and not ids:
        raise click.UsageError("name a topic, or give --id ID")
    try:
        return [*names, *map(id_of, ids)]
    except ValueError as error:
        raise click.UsageError(f"{error}; `fencepost topic list --json` shows ids") from error


@topic.command("create", short_help="Create topics.")
@click.argument("names", metavar="TOPIC...", nargs=-1, required=True)
@click.option("--partitions", "-p", type=click.IntRange(min=1), metavar="N", help="[default: the broker's]")
@click.option("--replication-factor", "-r", type=click.IntRange(min=1), metavar="N", help="[default: the broker's]")
@click.option(
    "--set",
    "settings",
    multiple=True,
    type=SETTING,
    metavar="NAME=VALUE",
    help="Set a setting on the topic; repeatable.",
)
@click.option("--if-not-exists", is_flag=True, help="Do not fail if the topic exists, whatever its settings.")
@click.option("--dry-run", is_flag=True, help="Check the request on the broker. Create nothing.")
@broker_options
def create_command(
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    settings: tuple[Setting, ...],
    if_not_exists: bool,
    dry_run: bool,
    broker: Broker,
) -> None:
    """Create topics. A topic that the broker refuses does not stop the others.

    To create many topics at once or not at all, or to bring them to the state that a file describes, use
    fencepost topic apply.

    \b
    Examples:
      fencepost topic create orders --partitions 12
      fencepost topic create customers --set cleanup.policy=compact --if-not-exists
    """
    configs = as_mapping(settings)

    async def query(admin: "Admin") -> Any:
        from fencepost.client.admin import ItemsFailedError, NewTopic

        wanted = [NewTopic(name, partitions or -1, replication_factor or -1, configs) for name in names]
        try:
            return await admin.create_topics(wanted, validate_only=dry_run), {}
        except ItemsFailedError as some:
            return some.results, some.errors

    made, refused = broker.ask(query)
    outcomes = [topic_text.creation(name, made.get(name), refused.get(name), if_not_exists) for name in names]
    _report(outcomes, "created", dry_run, broker.as_json, broker.bootstrap)
    if len(made) == 1 and not dry_run and not broker.as_json:
        show = command_for(broker.bootstrap, "topic", "describe", next(iter(made)))
        click.echo(f"Show its partitions and settings:\n  {show}", err=True)


@topic.command("delete", short_help="Delete topics with all their records.")
@click.argument("names", metavar="TOPIC...", nargs=-1, shell_complete=complete_topics)
@click.option(
    "--id",
    "ids",
    multiple=True,
    metavar="ID",
    help="Name a topic by its id, as `topic list --json` shows it; repeatable.",
)
@click.option("--if-exists", is_flag=True, help="Do not fail if the topic does not exist.")
@click.option("--dry-run", is_flag=True, help="Say what would be deleted. Delete nothing.")
@broker_options
def delete_command(
    names: tuple[str, ...], ids: tuple[str, ...], if_exists: bool, dry_run: bool, broker: Broker
) -> None:
    """Delete topics with all their records and the offsets that groups committed for them. This cannot be undone.

    --id deletes the topic with this id, and never a newer topic of the same name.

    \b
    Examples:
      fencepost topic delete orders-test --dry-run
      fencepost topic delete orders-test billing-test --if-exists
    """
    wanted = references(names, ids)

    async def query(admin: "Admin") -> Any:
        from fencepost.client.admin import ItemsFailedError

        there: Mapping[str, TopicDescription] = {}
        refused: dict[str | bytes, KafkaError] = {}
        try:
            there = await admin.describe_topics(wanted)
        except ItemsFailedError as some:
            there, refused = some.results, dict(some.errors)
        going = [one for one in wanted if one not in refused]
        if going and not dry_run:
            try:
                await admin.delete_topics(going)
            except ItemsFailedError as some:
                refused |= some.errors
        return there, refused

    there, refused = broker.ask(query)
    outcomes = [topic_text.deletion(one, there, refused.get(one), if_exists) for one in wanted]
    _report(outcomes, "deleted", dry_run, broker.as_json, broker.bootstrap)


def _report(outcomes: "Sequence[Any]", done: str, dry_run: bool, as_json: bool, bootstrap: str) -> None:
    """Print the outcome for each topic; exit code 1 if one was refused."""
    errors = [one.error for one in outcomes if one.error is not None]
    if as_json:
        print_json([topic_text.outcome_json(one, done, dry_run) for one in outcomes])
    elif len(outcomes) > 1 or not errors:
        for one in outcomes:
            click.echo(topic_text.outcome_text(one, done, dry_run), err=one.error is not None)
    if len(outcomes) > 1 and errors:
        fail(f"{len(errors)} of {len(outcomes)} could not be {done}", *hints_for(errors, bootstrap))
    if errors:
        fail_with(errors[0], bootstrap)


for command in (apply, add_partitions, alter, move, offsets, trim):
    topic.add_command(command)
