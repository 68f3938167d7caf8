"""`fencepost topic add-partitions` and `alter`: changes of existing topics."""

from typing import TYPE_CHECKING, Any

import click

from fencepost.cli.completion.names import complete_topics
from fencepost.cli.connect import Broker, broker_options, fail_with, print_json
from fencepost.cli.parameters import SETTING, Setting, as_mapping
from fencepost.cli.plain_text import counted
from fencepost.client import KafkaError

if TYPE_CHECKING:
    from fencepost.cli.setting_changes import Step
    from fencepost.client.admin import Admin


@click.command("add-partitions", short_help="Add partitions to a topic.")
@click.argument("name", metavar="TOPIC", shell_complete=complete_topics)
@click.option("--to", "total", type=click.IntRange(min=1), metavar="N", help="Grow to this number of partitions.")
@click.option("--by", "more", type=click.IntRange(min=1), metavar="N", help="Add this number of partitions.")
@click.option("--dry-run", is_flag=True, help="Check the request on the broker. Change nothing.")
@broker_options
def add_partitions(name: str, total: int | None, more: int | None, dry_run: bool, broker: Broker) -> None:
    """Add partitions to a topic. This cannot be undone.

    Records stay where they are. New records of a key may go to another partition than its older records, so readers
    lose the order within a key. Compaction keeps the last value of a key in each partition.

    \b
    Examples:
      fencepost topic add-partitions orders --to 12 --dry-run
      fencepost topic add-partitions orders --by 4
    """
    if (total is None) == (more is None):
        raise click.UsageError("give exactly one of --to and --by")

    async def query(admin: "Admin") -> Any:
        before = len((await admin.describe_topics(name))[name].partitions)
        after = total if total is not None else before + (more or 0)
        await admin.create_partitions(name, after, validate_only=dry_run)
        return before, after

    before, after = broker.ask(query)
    if broker.as_json:
        print_json({"topic": name, "before": before, "after": after, "dry_run": dry_run})
        return
    grown = "would grow" if dry_run else "grew"
    click.echo(f"Topic {name!r} {grown} from {before} to {counted(after, 'partition')}.")


@click.command(short_help="Change settings of topics.")
@click.argument("names", metavar="TOPIC...", nargs=-1, required=True, shell_complete=complete_topics)
@click.option("--set", "settings", multiple=True, type=SETTING, metavar="NAME=VALUE", help="Set a setting; repeatable.")
@click.option(
    "--unset", multiple=True, metavar="NAME", help="Remove a setting, so that the broker's value holds; repeatable."
)
@click.option("--dry-run", is_flag=True, help="Check the request on the broker. Change nothing.")
@broker_options
def alter(
    names: tuple[str, ...], settings: tuple[Setting, ...], unset: tuple[str, ...], dry_run: bool, broker: Broker
) -> None:
    """Change settings of topics. Settings that are not named do not change. Each topic gets all changes or none; the
    first topic that is refused ends the command.

    More about settings, also of brokers and groups, and how lists are changed: fencepost config.

    \b
    Examples:
      fencepost topic alter orders --set retention.ms=86400000 --unset retention.bytes
      fencepost topic alter orders billing --set min.insync.replicas=2 --dry-run
    """
    from fencepost.cli.setting_changes import print_steps

    changes = {**as_mapping(settings), **dict.fromkeys(unset)}
    if not changes:
        raise click.UsageError("give --set NAME=VALUE or --unset NAME")
    if len(changes) < len(settings) + len(unset):
        raise click.UsageError("each setting can be named only once")

    async def query(admin: "Admin") -> Any:
        from fencepost.cli.setting_changes import changed

        steps: list[Step] = []
        try:
            for name in names:
                steps += await changed(admin, {"topic": name}, changes, dry_run=dry_run)
        except KafkaError as error:
            if not steps:
                raise
            return steps, error
        return steps, None

    steps, error = broker.ask(query)
    print_steps(steps, dry_run, broker.as_json)
    if error is not None:
        fail_with(
            error, broker.bootstrap, f"the topics above {'would be' if dry_run else 'were'} changed, and no others"
        )
