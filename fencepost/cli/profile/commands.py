"""`fencepost profile`: named brokers, and how to connect to them."""

from pathlib import Path
from typing import Any, NoReturn

import click

from fencepost.cli import profiles
from fencepost.cli.client_options import BOOTSTRAP_NAMES, complete_profiles, with_ports
from fencepost.cli.connect import fail, print_json
from fencepost.cli.parameters import SETTING, Setting, as_mapping
from fencepost.cli.plain_text import counted, table
from fencepost.cli.profiles import SECRET, Profile, ProfileError, Profiles

BOOTSTRAP = "bootstrap.servers"
_json_option = click.option("--json", "as_json", is_flag=True, help="Write JSON instead of text, errors too.")


@click.group()
def profile() -> None:
    """Name brokers, and how to connect to them. Every command uses the current profile, or --profile NAME.

    \b
    Create a profile, and use it from now on:
      fencepost profile create prod --bootstrap broker:9093 --command-config prod.properties
    Use another one:
      fencepost profile use local
      fencepost topic list --profile prod

    A profile holds no password: it names a file or an environment variable. Options of a command override it.
    """


@profile.command("create", short_help="Create a profile and use it.")
@click.argument("name", metavar="PROFILE")
@click.option("--bootstrap", "-b", metavar="HOST[:PORT]", help="Its brokers; port 9092 if none is given.")
@click.option(
    "--command-config",
    "command_config",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Read its other properties from this file, each time. The profile keeps the path only.",
)
@click.option("-X", "--property", "given", metavar="NAME=VALUE", type=SETTING, multiple=True, help="One property.")
@click.option(
    "--from-file", metavar="NAME=PATH", type=SETTING, multiple=True, help="Read this property, a password, from a file."
)
@click.option(
    "--from-env",
    "from_environment",
    metavar="NAME=VARIABLE",
    type=SETTING,
    multiple=True,
    help="Read this property, a password, from an environment variable.",
)
@click.option("--replace", is_flag=True, help="Replace a profile of this name.")
def create_command(
    name: str,
    bootstrap: str | None,
    command_config: Path | None,
    given: tuple[Setting, ...],
    from_file: tuple[Setting, ...],
    from_environment: tuple[Setting, ...],
    replace: bool,
) -> None:
    """Create a profile and use it from now on. All options with several values are repeatable.

    Properties have the names of Java's client or librdkafka, as in --command-config of all commands.

    \b
    Examples:
      fencepost profile create local --bootstrap 127.0.0.1:9092
      fencepost profile create prod -b broker:9093 --command-config ~/prod.properties
      fencepost profile create ci -b broker:9093 -X security.protocol=SASL_SSL -X sasl.mechanism=SCRAM-SHA-512 \\
        -X sasl.username=ci --from-env sasl.password=CI_PASSWORD
    """
    secret = next((one.name for one in given if SECRET.search(one.name)), None)
    if secret is not None:
        raise click.UsageError(f"{secret} is secret: use --from-file {secret}=PATH or --from-env {secret}=VARIABLE")
    properties = as_mapping(given)
    if bootstrap is not None:
        properties[BOOTSTRAP] = with_ports(bootstrap)
    paths = {key: str(Path(value).absolute()) for key, value in as_mapping(from_file).items()}
    config = None if command_config is None else str(command_config.absolute())
    made = Profile(properties, paths, as_mapping(from_environment), config)
    known = _read()
    if name in known.by_name and not replace:
        fail(f"profile {name!r} exists", "--replace replaces it")
    _check(made)
    _write(Profiles({**known.by_name, name: made}, name))
    click.echo(f"Profile {name!r} is created. All commands use it now.")


@profile.command("list")
@_json_option
def list_command(as_json: bool) -> None:
    """List the profiles. An asterisk marks the current one."""
    known = _read()
    if as_json:
        print_json([_as_json(known, name) for name in sorted(known.by_name)])
        return
    rows = [
        (name, _bootstrap(one), "*" if name == known.current else "") for name, one in sorted(known.by_name.items())
    ]
    if rows:
        click.echo(table(("PROFILE", "BOOTSTRAP", ""), rows))
    click.echo(counted(len(rows), "profile"), err=True)


@profile.command("use")
@click.argument("name", metavar="PROFILE", shell_complete=complete_profiles)
def use_command(name: str) -> None:
    """Use a profile from now on."""
    known = _read()
    _named(known, name)
    _write(known._replace(current=name))
    click.echo(f"All commands use the profile {name!r} now.")


@profile.command("show")
@click.argument("name", metavar="[PROFILE]", required=False, shell_complete=complete_profiles)
@_json_option
def show_command(name: str | None, as_json: bool) -> None:
    """Show a profile, or the current one. Passwords are not shown."""
    known = _read()
    name = name or known.current
    if name is None:
        fail("no profile is in use", "`fencepost profile use PROFILE` uses one")
    one = _named(known, name)
    if as_json:
        print_json(_as_json(known, name))
        return
    rows = [*_shown(one).items()]
    rows += [] if one.command_config is None else [("other properties", f"from {one.command_config}")]
    click.echo(table(("PROPERTY", "VALUE"), rows) if rows else f"Profile {name!r} has no properties.")


@profile.command("delete")
@click.argument("name", metavar="PROFILE", shell_complete=complete_profiles)
def delete_command(name: str) -> None:
    """Delete a profile. Files that it names stay."""
    known = _read()
    _named(known, name)
    left = {other: one for other, one in known.by_name.items() if other != name}
    _write(Profiles(left, None if name == known.current else known.current))
    click.echo(f"Profile {name!r} is deleted." + (" No profile is in use now." if name == known.current else ""))


def _check(made: Profile) -> None:
    """Refuse properties that no client accepts. The values of secrets are not read: they may come later."""
    from fencepost.client import Client, ConfigError

    secrets = dict.fromkeys((*made.from_file, *made.from_environment), "-")
    try:
        values = {**made._replace(from_file={}, from_environment={}).values(), **secrets}
        if not any("jaas" in name for name in secrets):
            Client.from_config({BOOTSTRAP: "127.0.0.1:9092", **values})
    except ProfileError as error:
        fail(str(error))
    except ConfigError as error:
        raise click.UsageError(str(error)) from error


def _shown(one: Profile) -> dict[str, str]:
    """Its properties, and where those are that it does not hold."""
    return {
        **{name: "(secret)" if SECRET.search(name) else value for name, value in one.properties.items()},
        **{name: f"from {place}" for name, place in one.from_file.items()},
        **{name: f"from ${place}" for name, place in one.from_environment.items()},
    }


def _as_json(known: Profiles, name: str) -> dict[str, Any]:
    one = known.by_name[name]
    return {
        "name": name,
        "current": name == known.current,
        "bootstrap": _bootstrap(one),
        "properties": _shown(one),
        "command_config": one.command_config,
    }


def _bootstrap(one: Profile) -> str | None:
    return next((one.properties[name] for name in BOOTSTRAP_NAMES if name in one.properties), None)


def _named(known: Profiles, name: str) -> Profile:
    try:
        return known.named(name)
    except ProfileError as error:
        _refuse(error)


def _read() -> Profiles:
    try:
        return profiles.read()
    except ProfileError as error:
        _refuse(error)


def _write(known: Profiles) -> None:
    try:
        profiles.write(known)
    except ProfileError as error:
        _refuse(error)


def _refuse(error: ProfileError) -> NoReturn:
    fail(str(error))
