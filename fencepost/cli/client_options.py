"""Options for the connection to a broker: --profile, --command-config FILE and -X NAME=VALUE, with Kafka's names.

-X overrides the file and the profile. A file replaces the whole profile, unless the command line names the profile.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

F = TypeVar("F", bound=Callable[..., Any])
DEFAULT_PORT = 9092
DEFAULT_BOOTSTRAP = f"127.0.0.1:{DEFAULT_PORT}"
_WITHOUT_PORT = re.compile(r"(\w+://)?([^\s:/\[\]]+|\[[^\s\[\]]+\])")
BOOTSTRAP_NAMES = ("bootstrap.servers", "metadata.broker.list")
_FILE, _SINGLE = "fencepost.command_config", "fencepost.properties"
_NAME, _PROFILE = "fencepost.profile_name", "fencepost.profile"


def complete_profiles(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The names of profiles, for a shell."""
    from fencepost.cli.profiles import ProfileError, read

    try:
        return [name for name in sorted(read().by_name) if name.startswith(incomplete)]
    except ProfileError:
        return []


def trust_options(command: F) -> F:
    """--profile, --command-config and -X. The command does not get them: `properties` returns their content."""
    for option in (
        click.option(
            "--profile",
            "profile",
            metavar="NAME",
            envvar="FENCEPOST_PROFILE",
            is_eager=True,
            expose_value=False,
            callback=_keep_name,
            shell_complete=complete_profiles,
            help="Connect as this profile says (`fencepost profile --help`). Also from FENCEPOST_PROFILE."
            "  [default: the current profile]",
        ),
        click.option(
            "-X",
            "--property",
            "assignments",
            metavar="NAME=VALUE",
            multiple=True,
            is_eager=True,
            expose_value=False,
            callback=_singles,
            help="Set one such property; repeatable. Other users of the machine can read it: give no password here.",
        ),
        click.option(
            "--command-config",
            "command_config",
            type=click.Path(path_type=Path, exists=True, dir_okay=False),
            envvar="FENCEPOST_COMMAND_CONFIG",
            is_eager=True,
            expose_value=False,
            callback=_from_file,
            help="Read connection properties (security.protocol, sasl.*, ssl.*, ...) from this file, under Java's or"
            " librdkafka's names, or as TOML. Also from FENCEPOST_COMMAND_CONFIG.",
        ),
    ):
        command = option(command)
    return command


def bootstrap_option(command: F) -> F:
    """--bootstrap; without it, the properties may name the broker."""
    option = click.option(
        "--bootstrap",
        "-b",
        metavar="HOST[:PORT]",
        default=DEFAULT_BOOTSTRAP,
        show_default=True,
        envvar="FENCEPOST_BOOTSTRAP",
        callback=_bootstrap,
        help="Ask this broker; port 9092 if none is given. Also from FENCEPOST_BOOTSTRAP.",
    )
    return option(command)


def properties(context: click.Context) -> dict[str, Any]:
    """The properties of the file or the profile, overridden by those of the command line. Raises UsageError."""
    _, values = _profile(context) or context.meta.get(_FILE, (None, {}))
    return {**values, **context.meta.get(_SINGLE, {})}


def profile_name(context: click.Context) -> str | None:
    found = _profile(context)
    return None if found is None else found[0]


def _profile(context: click.Context) -> tuple[str, dict[str, Any]] | None:
    """The profile that the command line or the environment names, or the current one, and its values.

    None if there is none, or if a file of properties replaces it. Raises UsageError.
    """
    if _PROFILE not in context.meta:
        context.meta[_PROFILE] = _read_profile(context)
    return context.meta[_PROFILE]  # type: ignore[no-any-return]


def _read_profile(context: click.Context) -> tuple[str, dict[str, Any]] | None:
    from fencepost.cli.profiles import ProfileError, read

    if _is_named(context) and context.get_parameter_source("command_config") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--profile and --command-config exclude each other: a profile may name a file", context)
    if _FILE in context.meta and not _is_named(context):
        return None
    try:
        known = read()
        name = context.meta.get(_NAME) or known.current
        return None if name is None else (name, known.named(name).values())
    except ProfileError as error:
        raise click.UsageError(str(error), context) from error


def _is_named(context: click.Context) -> bool:
    """Whether the command line itself names the profile: it then overrides the environment."""
    return context.get_parameter_source("profile") is ParameterSource.COMMANDLINE


def _keep_name(context: click.Context, parameter: click.Parameter, name: str | None) -> None:
    context.meta[_NAME] = name


def config_file(context: click.Context) -> Path | None:
    """The properties file that the command line or the environment names, if it is used."""
    path, _ = (None, {}) if _profile(context) is not None else context.meta.get(_FILE, (None, {}))
    return path  # type: ignore[no-any-return]


def is_default(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is ParameterSource.DEFAULT


def _from_file(context: click.Context, parameter: click.Parameter, path: Path | None) -> None:
    if path is None:
        return
    from fencepost.broker.config.fields import ConfigError
    from fencepost.broker.config.sources import from_file

    try:
        context.meta[_FILE] = path, {given.name: given.raw for given in from_file(path)}
    except ConfigError as error:
        raise click.BadParameter(str(error), context, parameter) from error


def _singles(context: click.Context, parameter: click.Parameter, assignments: tuple[str, ...]) -> None:
    if not assignments:
        return
    from fencepost.broker.config.fields import ConfigError
    from fencepost.broker.config.sources import from_assignments

    try:
        context.meta[_SINGLE] = {given.name: given.raw for given in from_assignments(assignments, "-X")}
    except ConfigError as error:
        raise click.BadParameter(str(error), context, parameter) from error


def _bootstrap(context: click.Context, parameter: click.Parameter, value: str) -> str:
    of_environment = context.get_parameter_source("bootstrap") is ParameterSource.ENVIRONMENT
    if is_default(context, "bootstrap") or (of_environment and _is_named(context)):
        values = properties(context)
        value = next((str(values[name]) for name in BOOTSTRAP_NAMES if name in values), value)
    return with_ports(value)


def with_ports(value: str) -> str:
    return ",".join(_with_port(server.strip()) for server in value.split(","))


def _with_port(server: str) -> str:
    """`localhost` as `localhost:9092`; other values stay as they are."""
    return f"{server}:{DEFAULT_PORT}" if _WITHOUT_PORT.fullmatch(server) else server
