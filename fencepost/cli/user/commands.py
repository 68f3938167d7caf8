"""`fencepost user`: who can log in by SCRAM, and with which password."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fencepost.cli.connect import Broker, broker_options, command_for, fail, print_json
from fencepost.cli.plain_text import cell, counted, table
from fencepost.protocol.scram import ITERATIONS, MAX_ITERATIONS, MECHANISM_NUMBERS, MIN_ITERATIONS

if TYPE_CHECKING:
    from fencepost.client.admin import Admin, ScramCredential, ScramMechanism

STANDARD_INPUT = "-"
Command = TypeVar("Command", bound=Callable[..., Any])

_password_file = click.option(
    "--password-file",
    metavar="FILE",
    type=click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True),
    help="Read the password from the first line of FILE; - is standard input. [default: ask for it]",
)
_iterations = click.option(
    "--iterations",
    type=click.IntRange(MIN_ITERATIONS, MAX_ITERATIONS),
    default=ITERATIONS,
    show_default=True,
    help="How often the password is hashed: more iterations make guessing slower, and logins too.",
)


def _mechanisms(text: str, default: tuple[str, ...] = ()) -> Callable[[Command], Command]:
    """The option that chooses mechanisms."""
    choice = click.Choice(tuple(MECHANISM_NUMBERS))
    return click.option("--mechanism", "mechanisms", type=choice, multiple=True, default=default, help=text)


@click.group()
def user() -> None:
    """Manage the users that log in by SCRAM. The broker keeps them in its metadata.

    \b
    Let a program log in, and see who can:
      fencepost user add app
      fencepost user list
    Change a password, from a file or a secret store:
      fencepost user set-password app
      vault read -field=password secret/app | fencepost user set-password app --password-file -
    Take the right to log in away:
      fencepost user delete app

    A password is never an argument: other users of the machine can read those. The commands ask for it, or read
    --password-file. What a user may do is a matter of access rules. Connections that are open stay open when a password
    changes or a user is deleted.

    All commands speak Kafka's protocol and work with Apache Kafka too. Exit code 0: done; 1: failed or refused; 2:
    wrong usage.
    """


@user.command("list", short_help="List the users with their mechanisms.")
@click.argument("names", metavar="[USER]...", nargs=-1)
@broker_options
def list_command(names: tuple[str, ...], broker: Broker) -> None:
    """List the users with their mechanisms and iterations. Passwords cannot be read back.

    \b
    Examples:
      fencepost user list
      fencepost user list alice --json
    """
    found = broker.ask(lambda admin: admin.describe_user_scram_credentials(names or None))
    if broker.as_json:
        print_json([{"user": name, "credentials": _credentials_json(found[name])} for name in sorted(found)])
        return
    rows = [(name, mechanism_name(one.mechanism), one.iterations) for name in sorted(found) for one in found[name]]
    if rows:
        click.echo(table(("USER", "MECHANISM", "ITERATIONS"), rows))
    click.echo(counted(len(found), "user"), err=True)


def _credentials_json(found: "tuple[ScramCredential, ...]") -> list[dict[str, Any]]:
    return [{"mechanism": mechanism_name(one.mechanism), "iterations": one.iterations} for one in found]


@user.command("add", short_help="Add a user.")
@click.argument("name", metavar="USER")
@_mechanisms("Let the user log in by this mechanism; repeatable. [default: both]", tuple(MECHANISM_NUMBERS))
@_password_file
@_iterations
@broker_options
def add_command(
    name: str, mechanisms: tuple[str, ...], password_file: Path | None, iterations: int, broker: Broker
) -> None:
    """Add a user, who can then log in with this password.

    \b
    Examples:
      fencepost user add alice
      fencepost user add app --password-file /run/secrets/app --mechanism SCRAM-SHA-512
    """
    if broker.ask(lambda admin: _credentials_of(admin, name)):
        fail(f"the user {name!r} exists already", f"`fencepost user set-password {name}` changes the password")
    password = _password(name, password_file)
    broker.ask(lambda admin: _set(admin, name, mechanisms, password, iterations))
    _done(broker, name, mechanisms, f"Added the user {cell(name)} ({', '.join(mechanisms)}).")


@user.command("set-password", short_help="Change the password of a user.")
@click.argument("name", metavar="USER")
@_password_file
@_iterations
@broker_options
def set_password_command(name: str, password_file: Path | None, iterations: int, broker: Broker) -> None:
    """Change the password of a user, for each mechanism that the user has.

    New logins need the new password. Connections that are open stay open until their session ends.

    \b
    Examples:
      fencepost user set-password alice
      pwgen 24 1 | tee app.password | fencepost user set-password app --password-file -
    """
    found = _existing(broker, name)
    password = _password(name, password_file)
    broker.ask(lambda admin: _set(admin, name, found, password, iterations))
    _done(broker, name, found, f"Changed the password of {cell(name)} ({', '.join(found)}).")


@user.command("delete", short_help="Delete a user.")
@click.argument("name", metavar="USER")
@_mechanisms("Delete the credential of this mechanism only; repeatable. [default: all]")
@broker_options
def delete_command(name: str, mechanisms: tuple[str, ...], broker: Broker) -> None:
    """Delete a user, who cannot log in any more. Connections that are open stay open until their session ends.

    \b
    Example:
      fencepost user delete alice
    """
    from fencepost.client.admin import ScramDeletion

    found = _existing(broker, name)
    wanted = mechanisms or found

    async def delete(admin: "Admin") -> None:
        for mechanism in wanted:  # one at a time: Kafka refuses a request that names a user twice
            await admin.alter_user_scram_credentials(delete=ScramDeletion(name, _number(mechanism)))

    broker.ask(delete)
    _done(broker, name, wanted, f"Deleted {cell(name)} ({', '.join(wanted)}).")
    if set(wanted) == set(found) and not broker.as_json:
        remove = command_for(broker.bootstrap, "acl", "remove", "--principal", f"User:{name}")
        click.echo(f"Open connections and access rules of the user stay. Remove the rules:\n  {remove}", err=True)


def mechanism_name(mechanism: "ScramMechanism") -> str:
    return mechanism.name.replace("_", "-")


def _number(mechanism: str) -> "ScramMechanism":
    from fencepost.client.admin import ScramMechanism

    return ScramMechanism[mechanism.replace("-", "_")]


async def _credentials_of(admin: "Admin", name: str) -> "tuple[ScramCredential, ...]":
    return (await admin.describe_user_scram_credentials()).get(name, ())


def _existing(broker: Broker, name: str) -> tuple[str, ...]:
    """The mechanisms of a user, who must exist."""
    found = broker.ask(lambda admin: _credentials_of(admin, name))
    if not found:
        fail(f"the user {name!r} does not exist", "`fencepost user list` shows all users", error="RESOURCE_NOT_FOUND")
    return tuple(mechanism_name(one.mechanism) for one in found)


async def _set(admin: "Admin", name: str, mechanisms: tuple[str, ...], password: str, iterations: int) -> None:
    from fencepost.client.admin import ScramUpsertion

    for mechanism in mechanisms:  # one at a time: Kafka refuses a request that names a user twice
        upsertion = ScramUpsertion(name, password, _number(mechanism), iterations)
        await admin.alter_user_scram_credentials(upsert=upsertion)


def _password(name: str, file: Path | None) -> str:
    """The password from a file, from standard input or from the terminal."""
    if file is None:
        if not sys.stdin.isatty():
            fail(
                "standard input is not a terminal", "Read the password from a file: --password-file FILE, or - for it."
            )
        return str(click.prompt(f"Password of {cell(name)}", hide_input=True, confirmation_prompt=True, err=True))
    text = sys.stdin.readline() if str(file) == STANDARD_INPUT else file.read_text("utf-8")
    password = text.partition("\n")[0].removesuffix("\r")
    if not password:
        fail(f"{'standard input' if str(file) == STANDARD_INPUT else file} has no password in its first line")
    return password


def _done(broker: Broker, name: str, mechanisms: tuple[str, ...], text: str) -> None:
    broker.print({"user": name, "mechanisms": list(mechanisms)}, text)
