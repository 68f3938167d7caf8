"""Options for the connection to a broker: --command-config FILE and -X NAME=VALUE, with Kafka's names."""

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


def trust_options(command: F) -> F:
    """--command-config and -X. The command does not get them: `properties` returns their content."""
    for option in (
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
    """The properties of the file, overridden by those of the command line."""
    _, values = context.meta.get(_FILE, (None, {}))
    return {**values, **context.meta.get(_SINGLE, {})}


def config_file(context: click.Context) -> Path | None:
    """The properties file, if the command line names one."""
    path, _ = context.meta.get(_FILE, (None, {}))
    return path  # type: ignore[no-any-return]


def is_default(context: click.Context, name: str) -> bool:
    """Whether a parameter has its default value."""
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
    if is_default(context, "bootstrap"):
        values = properties(context)
        value = next((str(values[name]) for name in BOOTSTRAP_NAMES if name in values), value)
    return ",".join(_with_port(server.strip()) for server in value.split(","))


def _with_port(server: str) -> str:
    """`localhost` as `localhost:9092`; other values stay as they are."""
    return f"{server}:{DEFAULT_PORT}" if _WITHOUT_PORT.fullmatch(server) else server
