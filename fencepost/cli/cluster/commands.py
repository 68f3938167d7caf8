"""`fencepost cluster`: brokers, features, directories, leaders, and replicas that move."""

from typing import TYPE_CHECKING, Any

import click

from fencepost.cli.cluster import text as cluster_text
from fencepost.cli.cluster.cores import cores_command
from fencepost.cli.cluster.owners import drain_command, owners_command
from fencepost.cli.completion.names import complete_topics
from fencepost.cli.connect import Broker, broker_options, fail, print_json
from fencepost.cli.parameters import PLACE, Place
from fencepost.cli.plain_text import counted
from fencepost.client import KafkaError
from fencepost.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from fencepost.client.admin import Admin


@click.group()
def cluster() -> None:
    """Show and manage the cluster: brokers, features, log directories, leaders.

    \b
    Who is there?
      fencepost cluster describe
      fencepost cluster brokers
    What can it do, and what is switched on?
      fencepost cluster features
      fencepost cluster set-feature transaction.version 2 --dry-run
    Where are the bytes?
      fencepost cluster log-dirs --by-topic
    Elect leaders, show reassignments:
      fencepost cluster elect-leaders --all
      fencepost cluster reassignments
    Use another number of cores, while the broker runs:
      fencepost cluster cores 4
    Who leads what over PostgreSQL, and why not?
      fencepost cluster owners --store postgresql://app@db/fencepost orders
      fencepost cluster drain 3 --store postgresql://app@db/fencepost

    `owners` and `drain` ask the database of a cluster. All others speak Kafka's protocol, and all but `cores` work
    with Apache Kafka too. Exit code 0: done; 1: failed or refused; 2: wrong usage.
    """


cluster.add_command(cores_command)
cluster.add_command(owners_command)
cluster.add_command(drain_command)


@cluster.command("describe", short_help="Show the cluster: id, controller, brokers, features, quorum.")
@broker_options
def describe_command(broker: Broker) -> None:
    """Show the cluster: its id, its controller, its brokers, its features, and the quorum of the metadata log.

    \b
    Example:
      fencepost cluster describe --json
    """

    async def query(admin: "Admin") -> Any:
        return await admin.describe_cluster(), await admin.describe_features(), await _quorum(admin)

    described, features, quorum = broker.ask(query)
    broker.print(
        cluster_text.cluster_json(described, features, quorum), cluster_text.cluster_text(described, features, quorum)
    )


async def _quorum(admin: "Admin") -> Any:
    """The quorum of the metadata log; None if the broker does not report one."""
    try:
        return await admin.describe_quorum()
    except KafkaError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        return None


@cluster.command("brokers")
@click.option("--fenced", is_flag=True, help="Show fenced brokers too (Kafka 4.0).")
@broker_options
def brokers_command(fenced: bool, broker: Broker) -> None:
    """List the brokers with their advertised addresses.

    \b
    Example:
      fencepost cluster brokers
    """
    described = broker.ask(lambda admin: admin.describe_cluster(include_fenced=fenced))
    broker.print(
        [cluster_text.broker_json(one, described.controller_id) for one in described.brokers],
        cluster_text.brokers_text(described),
    )


@cluster.command("features", short_help="Show features: finalized and supported levels.")
@broker_options
def features_command(broker: Broker) -> None:
    """Show features (KIP-584): the finalized level of each, and the levels that the broker supports.

    \b
    Example:
      fencepost cluster features
    """
    described = broker.ask(lambda admin: admin.describe_features())
    broker.print(cluster_text.features_json(described), cluster_text.features_text(described))


@cluster.command("set-feature", short_help="Set a feature to another level.")
@click.argument("name", metavar="FEATURE")
@click.argument("level", metavar="LEVEL", type=click.IntRange(min=0))
@click.option("--downgrade", is_flag=True, help="Allow a lower level, if no metadata is lost by it.")
@click.option("--unsafe", is_flag=True, help="Allow a lower level, even if metadata is lost by it.")
@click.option("--dry-run", is_flag=True, help="Check the request on the broker. Change nothing.")
@broker_options
def set_feature_command(name: str, level: int, downgrade: bool, unsafe: bool, dry_run: bool, broker: Broker) -> None:
    """Set a feature to another level for the whole cluster. Level 0 switches it off.

    \b
    Examples:
      fencepost cluster set-feature transaction.version 2 --dry-run
      fencepost cluster set-feature group.version 0 --downgrade
    """

    async def query(admin: "Admin") -> Any:
        before = (await admin.describe_features()).finalized.get(name, 0)
        if level < before and not (downgrade or unsafe):
            raise KafkaError(
                f"feature {name!r} is at level {before}: a lower level needs --downgrade, or --unsafe if metadata may"
                " be lost",
                code=ErrorCode.INVALID_UPDATE_VERSION,
            )
        await admin.update_features({name: level}, downgrade=downgrade, unsafe=unsafe, validate_only=dry_run)
        return before

    before = broker.ask(query)
    broker.print(
        {"feature": name, "before": before, "after": level, "dry_run": dry_run},
        f"Feature {name} {'would go' if dry_run else 'went'} from {before} to {level}.",
    )


@cluster.command("log-dirs", short_help="Show the log directories of brokers and their sizes.")
@click.option("--broker", "brokers", multiple=True, type=int, metavar="ID", help="Show only this broker; repeatable.")
@click.option(
    "--topic", "topics", multiple=True, metavar="TOPIC", help="Show only the partitions of this topic; repeatable."
)
@click.option("--by-topic", is_flag=True, help="Print one line for each topic.")
@click.option("--by-partition", is_flag=True, help="Print one line for each replica.")
@broker_options
def log_dirs_command(
    brokers: tuple[int, ...], topics: tuple[str, ...], by_topic: bool, by_partition: bool, broker: Broker
) -> None:
    """Show the log directories of brokers: how much they hold, and how much space is free.

    \b
    Examples:
      fencepost cluster log-dirs
      fencepost cluster log-dirs --topic orders --by-partition
    """
    if by_topic and by_partition:
        raise click.UsageError("--by-topic and --by-partition exclude each other")

    async def query(admin: "Admin") -> Any:
        from fencepost.cli.places import partitions_of

        wanted = None
        if topics:
            wanted = await partitions_of(admin, tuple(Place(name, None) for name in topics))
        return await admin.describe_log_dirs(brokers or None, partitions=wanted)

    found = broker.ask(query)
    if broker.as_json:
        print_json([cluster_text.log_dir_json(broker, one) for broker, dirs in sorted(found.items()) for one in dirs])
    elif by_topic or by_partition:
        click.echo(cluster_text.sizes_text(found, by_partition))
    else:
        click.echo(cluster_text.log_dirs_text(found))
    if any(one.error is not None for dirs in found.values() for one in dirs):
        fail("a directory is offline; the broker's log has the reason")


@cluster.command("elect-leaders", short_help="Elect the preferred replicas as leaders.")
@click.argument("places", metavar="[TOPIC[:PARTITION]]...", nargs=-1, type=PLACE, shell_complete=complete_topics)
@click.option("--all", "everything", is_flag=True, help="Elect leaders for all partitions.")
@click.option("--unclean", is_flag=True, help="Allow unclean leader election. May lose records.")
@broker_options
def elect_leaders_command(places: tuple[Place, ...], everything: bool, unclean: bool, broker: Broker) -> None:
    """Elect the preferred replica of each partition as its leader. A partition that it leads already does not change.

    \b
    Examples:
      fencepost cluster elect-leaders --all
      fencepost cluster elect-leaders orders:3
    """
    if everything == bool(places):
        raise click.UsageError("name topics or partitions, or use --all")

    async def query(admin: "Admin") -> Any:
        from fencepost.cli.places import partitions_of
        from fencepost.client.admin import ItemsFailedError

        wanted = None if everything else await partitions_of(admin, places)
        try:
            return await admin.elect_leaders(wanted, unclean=unclean), {}
        except ItemsFailedError as some:
            return some.results, some.errors

    elected, refused = broker.ask(query)
    if broker.as_json:
        print_json(cluster_text.elections_json(elected, refused))
    else:
        click.echo(cluster_text.elections_text(elected, refused))
    if refused:
        fail("some partitions could get no leader; `fencepost topic describe TOPIC` shows their replicas")


@cluster.command("reassignments")
@broker_options
def reassignments_command(broker: Broker) -> None:
    """List partitions whose replicas are being reassigned.

    \b
    Example:
      fencepost cluster reassignments
    """
    found = broker.ask(lambda admin: admin.list_partition_reassignments())
    if broker.as_json:
        print_json(cluster_text.moves_json(found))
        return
    if found:
        click.echo(cluster_text.moves_text(found))
    click.echo(f"{counted(len(found), 'partition')} being reassigned", err=True)
