"""`fencepost config`: the settings of topics, brokers and groups, where each comes from, and how to change it."""

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from fencepost.cli.completion.names import complete_config_names
from fencepost.cli.config.check import check_command
from fencepost.cli.connect import Broker, broker_options, fail, print_json
from fencepost.cli.parameters import SETTING, Setting, as_mapping
from fencepost.cli.plain_text import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fencepost.client.admin import Admin, ConfigEntry

KINDS = ("topic", "broker", "group")
ALL_BROKERS = "all"


class Subject(NamedTuple):
    """A thing with settings: a topic, a broker by id, all brokers, or a group."""

    kind: str
    name: str

    @property
    def named(self) -> dict[str, Any]:
        """As the client's admin calls take it."""
        from fencepost.client.admin.plan_types import subject_of

        return subject_of(self.kind, "" if self.kind == "broker" and self.name == ALL_BROKERS else self.name)


def _subject(kind: str, name: str) -> Subject:
    if kind == "broker" and name != ALL_BROKERS and not (name.isascii() and name.isdigit()):
        raise click.UsageError(f"{name!r} is not a broker id; give an id, or `broker all` for all brokers")
    return Subject(kind, name)


@click.group()
def config() -> None:
    """Show and change settings of topics, brokers and groups.

    A topic without its own value uses the broker's: the value set at run time for that broker, then for all brokers
    (`broker all`), then the value from the broker's start, then the default. `get` shows the source.

    \b
    What is set, and where does it come from?
      fencepost config get topic orders
      fencepost config get topic orders retention.ms --explain
      fencepost config get broker 1 --all
    Change it?
      fencepost config set topic orders retention.ms=86400000
      fencepost config set broker all log.retention.ms=86400000 --dry-run
      fencepost config unset group billing consumer.session.timeout.ms
    Would a broker start with this file?
      fencepost config check server.properties
    What is set anywhere, and which settings exist?
      fencepost config list
      fencepost config list --kind broker --all --explain

    All but `check` speak Kafka's protocol and work with Apache Kafka too. Exit code 0: done; 1: failed or refused; 2:
    wrong usage.
    """


config.add_command(check_command)


@config.command("get")
@click.argument("kind", metavar="KIND", type=click.Choice(KINDS))
@click.argument("name", metavar="NAME", shell_complete=complete_config_names)
@click.argument("settings", metavar="[SETTING]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Also show settings that have their default.")
@click.option("--explain", is_flag=True, help="Show what each setting means and what holds without it.")
@broker_options
def get_command(
    kind: str, name: str, settings: tuple[str, ...], everything: bool, explain: bool, broker: Broker
) -> None:
    """Show settings with the place each comes from. KIND is topic, broker or group; `broker all` is every broker.

    Without SETTING it shows what is set, with --all every setting. A SETTING may hold * and ?. FROM says where
    the value was set: on the topic, on the broker or all brokers at run time, at the broker's start, or nowhere
    (default).

    \b
    Examples:
      fencepost config get topic orders
      fencepost config get topic orders 'retention.*' --explain
      fencepost config get broker 1 --all --json
    """
    from fencepost.cli.config import text as config_text
    from fencepost.cli.setting_changes import settings_of

    subject = _subject(kind, name)

    found = broker.ask(lambda admin: settings_of(admin, subject.named))
    shown = _chosen(found, settings, everything)
    if broker.as_json:
        print_json([config_text.entry_json(entry) for entry in shown])
    elif not shown:
        click.echo(f"Nothing is set on {kind} {name!r}; --all shows what holds there.")
    else:
        click.echo(config_text.explained_text(shown) if explain else config_text.entries_text(shown))
    missing = [one for one in settings if "*" not in one and "?" not in one and one not in found]
    if missing:
        fail(f"{missing[0]!r} is not a setting of a {kind}{config_text.nearest(missing[0], found)}")


def _chosen(found: "Mapping[str, ConfigEntry]", names: tuple[str, ...], everything: bool) -> "list[ConfigEntry]":
    from fnmatch import fnmatchcase

    from fencepost.client.admin import ConfigSource

    if names:
        return [found[key] for key in sorted(found) if any(fnmatchcase(key, name) for name in names)]
    return [found[key] for key in sorted(found) if everything or found[key].source != ConfigSource.DEFAULT_CONFIG]


@config.command("set", short_help="Change settings. The others do not change.")
@click.argument("kind", metavar="KIND", type=click.Choice(KINDS))
@click.argument("name", metavar="NAME", shell_complete=complete_config_names)
@click.argument("settings", metavar="[SETTING=VALUE]...", nargs=-1, type=SETTING)
@click.option("--append", multiple=True, type=SETTING, metavar="NAME=VALUE", help="Add a value to a list; repeatable.")
@click.option(
    "--subtract", multiple=True, type=SETTING, metavar="NAME=VALUE", help="Remove a value from a list; repeatable."
)
@click.option("--dry-run", is_flag=True, help="Check the request on the broker. Change nothing.")
@broker_options
def set_command(
    kind: str,
    name: str,
    settings: tuple[Setting, ...],
    append: tuple[Setting, ...],
    subtract: tuple[Setting, ...],
    dry_run: bool,
    broker: Broker,
) -> None:
    """Change settings of one topic, broker or group: all that are named, or none. The others do not change.

    Read-only settings of a broker cannot be changed. A change holds at once, and after a restart too.

    \b
    Examples:
      fencepost config set topic orders retention.ms=86400000 segment.bytes=104857600
      fencepost config set topic orders --append cleanup.policy=compact
      fencepost config set broker all log.cleaner.threads=2 --dry-run
    """
    steps = len(settings) + len(append) + len(subtract)
    lists = {"append": as_mapping(append), "subtract": as_mapping(subtract)}
    changes = as_mapping(settings)
    if not steps:
        raise click.UsageError("name the settings to change, as SETTING=VALUE")
    if len({*changes, *lists["append"], *lists["subtract"]}) < steps:
        raise click.UsageError("each setting can be named only once")
    _change(_subject(kind, name), changes, lists, dry_run, broker)


@config.command("unset", short_help="Remove settings, so that the broker's value or the default holds.")
@click.argument("kind", metavar="KIND", type=click.Choice(KINDS))
@click.argument("name", metavar="NAME", shell_complete=complete_config_names)
@click.argument("settings", metavar="SETTING...", nargs=-1, required=True)
@click.option("--dry-run", is_flag=True, help="Check the request on the broker. Change nothing.")
@broker_options
def unset_command(kind: str, name: str, settings: tuple[str, ...], dry_run: bool, broker: Broker) -> None:
    """Remove settings, so that the broker's value or the default holds again.

    \b
    Example:
      fencepost config unset topic orders retention.ms
    """
    _change(_subject(kind, name), dict.fromkeys(settings), {}, dry_run, broker)


def _change(
    subject: Subject,
    changes: "Mapping[str, str | None]",
    lists: "Mapping[str, Mapping[str, str]]",
    dry_run: bool,
    broker: Broker,
) -> None:
    from fencepost.cli.setting_changes import changed, print_steps

    steps = broker.ask(lambda admin: changed(admin, subject.named, changes, **lists, dry_run=dry_run))
    print_steps(steps, dry_run, broker.as_json)


@config.command("list", short_help="List the settings of all topics, brokers and groups.")
@click.option("--kind", "kinds", multiple=True, type=click.Choice(KINDS), help="Only this kind; repeatable.")
@click.option("--all", "everything", is_flag=True, help="Show every setting there is, also at its default.")
@click.option("--explain", is_flag=True, help="Show what each setting means and what holds without it.")
@broker_options
def list_command(kinds: tuple[str, ...], everything: bool, explain: bool, broker: Broker) -> None:
    """List the settings of all topics, brokers and groups, with the place each comes from (Kafka 4.1).

    Without --all it lists settings of the topics, brokers and groups themselves, and those that a broker was started
    with. `get` shows the settings of one of them.

    \b
    Examples:
      fencepost config list
      fencepost config list --kind broker --all --explain
      fencepost config list --kind topic --json
    """
    from fencepost.cli.config import text as config_text

    found = broker.ask(lambda admin: _listed(admin, kinds or KINDS, everything))
    count = sum(len(entries) for _, entries in found)
    if broker.as_json:
        print_json(
            [
                {"kind": kind, "name": name, "settings": [config_text.entry_json(entry) for entry in entries]}
                for (kind, name), entries in found
            ]
        )
        return
    if count:
        click.echo(config_text.explained_list(found) if explain else config_text.list_text(found))
    click.echo(f"{counted(count, 'setting')} on {counted(len(found), 'resource')}", err=True)


async def _listed(
    admin: "Admin", kinds: "Sequence[str]", everything: bool
) -> "list[tuple[Subject, list[ConfigEntry]]]":
    """All resources with settings to show, with those settings."""
    from fencepost.cli.setting_changes import settings_of_several
    from fencepost.client.admin import ConfigResource, ConfigSource
    from fencepost.client.admin.plan_types import own_source

    resources = await admin.list_config_resources(kinds)
    all_brokers = ConfigResource("broker", "")
    if "broker" in kinds and all_brokers not in resources:
        resources.append(all_brokers)
    found = []
    for resource, entries in (await settings_of_several(admin, resources)).items():
        own = {own_source(*resource)}
        if resource.kind == "broker":
            own.add(ConfigSource.STATIC_BROKER_CONFIG)
        shown = [entry for _, entry in sorted(entries.items()) if everything or entry.source in own]
        if shown:
            found.append((Subject(resource.kind, resource.name or ALL_BROKERS), shown))
    return sorted(found)
