"""`fencepost quota`: limits on what users, client ids and addresses may take of a broker."""

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from fencepost.cli.connect import Broker, broker_options, fail
from fencepost.cli.parameters import SETTING, Setting, as_mapping
from fencepost.cli.plain_text import table
from fencepost.cli.setting_changes import Step, print_steps
from fencepost.client.admin.security_types import DEFAULT, QuotaEntity, QuotaName

if TYPE_CHECKING:
    from fencepost.client.admin import Admin

Quotas = Mapping[QuotaEntity, Mapping[str, float]]
_KINDS = {"user": "user", "client_id": "client-id", "ip": "ip"}
"""The fields of an entity, and their names in Kafka."""


@click.group()
def quota() -> None:
    """Limit what users, client ids and addresses may take of a broker.

    A client over its quota gets its responses at once, and then the broker reads nothing from it for a while. Other
    clients do not wait.

    \b
    Quotas of users and client ids:
      producer_byte_rate        bytes per second that a client writes
      consumer_byte_rate        bytes per second that it reads
      request_percentage        percent of the broker's time for requests
      controller_mutation_rate  partitions per second that it creates or deletes
    Quota of addresses:
      connection_creation_rate  new connections per second

    Which quota applies? The first of these that exists: the user with the client id; the user with the default client
    id; the user; the default user with the client id; both defaults; the default user; the client id; the default
    client id. A client that has not logged in is the user ANONYMOUS.

    \b
    Who has a quota?
      fencepost quota list
    Let alice write 1 MB a second, with all her clients together:
      fencepost quota set --user alice producer_byte_rate=1000000
    Let any other user take a tenth of the broker's time:
      fencepost quota set --default-user request_percentage=10
    Remove it:
      fencepost quota remove --user alice producer_byte_rate

    All commands speak Kafka's protocol and work with Apache Kafka too. Exit code 0: done; 1: failed or refused; 2:
    wrong usage.
    """


def entity_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--user, --client-id and --ip, and their defaults; the command gets them as `entity`."""

    @functools.wraps(command)
    def call(**given: Any) -> Any:
        parts: dict[str, str | QuotaName | None] = {}
        for field, kind in _KINDS.items():
            name, is_default = given.pop(field), given.pop(f"default_{field}")
            if name is not None and is_default:
                raise click.UsageError(f"give either --{kind} or --default-{kind}")
            parts[field] = DEFAULT if is_default else name
        if parts["ip"] is not None and (parts["user"] is not None or parts["client_id"] is not None):
            raise click.UsageError("a quota of an address has no user and no client id")
        return command(entity=QuotaEntity(**parts), **given)

    options: Callable[..., Any] = call
    for kind, metavar, what in (
        ("ip", "ADDRESS", "address"), ("client-id", "ID", "client id"), ("user", "NAME", "user")
    ):  # fmt: skip
        options = click.option(f"--default-{kind}", is_flag=True, help=f"Every {what} without its own quota.")(options)
        options = click.option(f"--{kind}", metavar=metavar, help=f"The {what}.")(options)
    return options


def _named(entity: QuotaEntity) -> QuotaEntity:
    """The entity of a change. Raises UsageError if it has no part."""
    if entity == QuotaEntity():
        raise click.UsageError("name a user, a client id or an address; see fencepost quota --help")
    return entity


@quota.command("list", short_help="Show quotas.")
@entity_options
@broker_options
def list_command(entity: QuotaEntity, broker: Broker) -> None:
    """Show quotas: all, or those of a user, a client id or an address.

    \b
    Examples:
      fencepost quota list
      fencepost quota list --user alice
      fencepost quota list --default-client-id --json
    """
    found: Quotas = broker.ask(lambda admin: admin.describe_client_quotas(entity))
    rows = [(*map(_shown, one), name, f"{value:.15g}") for one in sorted(found, key=_order)
            for name, value in sorted(found[one].items())]  # fmt: skip
    if rows or broker.as_json:
        as_objects = [{"entity": _json(one), "quotas": dict(found[one])} for one in sorted(found, key=_order)]
        broker.print(as_objects, table(("USER", "CLIENT ID", "ADDRESS", "QUOTA", "LIMIT"), rows))
    else:
        click.echo("No quota is set.", err=True)


@quota.command("set", short_help="Set quotas of a user, a client id, both together, or an address.")
@click.argument("quotas", metavar="QUOTA=LIMIT...", nargs=-1, required=True, type=SETTING)
@entity_options
@click.option("--dry-run", is_flag=True, help="Check the request on the broker. Change nothing.")
@broker_options
def set_command(quotas: tuple[Setting, ...], entity: QuotaEntity, dry_run: bool, broker: Broker) -> None:
    """Set quotas of a user, a client id, both together, or an address. Quotas that are not named do not change.

    \b
    Examples:
      fencepost quota set --user alice producer_byte_rate=1000000 consumer_byte_rate=5000000
      fencepost quota set --user alice --client-id import producer_byte_rate=100000
      fencepost quota set --default-ip connection_creation_rate=20 --dry-run
    """
    limits: dict[str, float | None] = {}
    for name, text in as_mapping(quotas).items():
        try:
            limits[name] = float(text)
        except ValueError:
            raise click.UsageError(f"{text!r} is not a number; write {name}=NUMBER") from None
    _change(broker, _named(entity), limits, dry_run)


@quota.command("remove", short_help="Remove quotas, so that the next one in the order applies.")
@click.argument("names", metavar="[QUOTA]...", nargs=-1)
@entity_options
@click.option("--dry-run", is_flag=True, help="Check the request on the broker. Change nothing.")
@broker_options
def remove_command(names: tuple[str, ...], entity: QuotaEntity, dry_run: bool, broker: Broker) -> None:
    """Remove quotas of a user, a client id, both together, or an address; without a name, all of them.

    Then the next quota in the order applies, for example that of the default user.

    \b
    Examples:
      fencepost quota remove --user alice producer_byte_rate
      fencepost quota remove --user alice --client-id import
    """
    _change(broker, _named(entity), dict.fromkeys(names), dry_run)


def _change(broker: Broker, entity: QuotaEntity, changes: dict[str, float | None], dry_run: bool) -> None:
    """Change quotas and print the values before and after; without `changes`, remove all."""

    async def query(admin: "Admin") -> Mapping[str, float]:
        before = (await admin.describe_client_quotas(entity, strict=True)).get(entity, {})
        changes.update({} if changes else dict.fromkeys(before))
        if changes:
            await admin.alter_client_quotas({entity: changes}, validate_only=dry_run)
        return before

    before = broker.ask(query)
    if not changes:
        fail(f"{_text(entity)} has no quota", "fencepost quota list shows who has one.")
    steps = [
        Step(_text(entity), name, _number(before.get(name)), _number(after)) for name, after in sorted(changes.items())
    ]
    print_steps(steps, dry_run, broker.as_json)


def _shown(name: "str | QuotaName | None") -> str:
    return "(default)" if name is DEFAULT else str(name or "")


def _text(entity: QuotaEntity) -> str:
    parts = zip(_KINDS.values(), entity, strict=True)
    return " ".join(f"{kind} {_shown(name)}" for kind, name in parts if name is not None)


def _json(entity: QuotaEntity) -> dict[str, str | None]:
    """As in Kafka's protocol: a name of null is the default of its type."""
    parts = zip(_KINDS.values(), entity, strict=True)
    return {kind: None if name is DEFAULT else str(name) for kind, name in parts if name is not None}


def _order(entity: QuotaEntity) -> tuple[str, ...]:
    return tuple(map(_shown, entity))


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:.15g}"
