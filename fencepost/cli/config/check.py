"""`fencepost config check`: whether a broker would start with a file of settings, without starting one."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fencepost.cli.connect import fail, print_json
from fencepost.cli.plain_text import counted

if TYPE_CHECKING:
    from fencepost.broker.config.broker_config import BrokerConfig


@click.command("check", short_help="Check a file of settings for a broker, without one.")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--set", "assignments", metavar="NAME=VALUE", multiple=True, help="As for `serve`: overrides the file; repeatable."
)
@click.option("--json", "as_json", is_flag=True, help="Write JSON instead of text, errors too.")
def check_command(file: Path, assignments: tuple[str, ...], as_json: bool) -> None:
    """Check FILE as `fencepost serve --config FILE` would, without starting a broker: a server.properties, or TOML.

    It reads the certificates that the file names, and settings from the environment, as `serve` does. It says which
    settings have no effect here, and which listeners are open to every client. Exit code 0: a broker would start with
    it; 1: it would not; 2: wrong usage.

    \b
    Examples:
      fencepost config check server.properties
      fencepost config check broker.toml --set node.id=2 --json
    """
    from fencepost.broker.config.broker_config import ConfigError, load_config

    try:
        found = load_config(file=file, environ=os.environ, assignments=assignments)
    except ConfigError as error:
        fail(str(error))
    if faults := _certificate_faults(found):
        fail("\n  ".join(faults))
    if as_json:
        print_json({"file": str(file), "settings": sorted(found.given), **_remarks(found)})
        return
    click.echo(f"{file}: a broker would start with it. {counted(len(found.given), 'setting')}.")
    for what, names in _remarks(found).items():
        if names:
            click.echo(f"  {what.replace('_', ' ')}: {', '.join(names)}")


def _certificate_faults(config: "BrokerConfig") -> list[str]:
    """Why the start would refuse the certificates of the listeners."""
    listeners = [one for one in config.client_listeners if one.protocol.tls]
    if not listeners:
        return []
    from fencepost.broker.config.tls_settings import tls_settings
    from fencepost.broker.security.tls_context import store_faults

    return [fault for one in listeners for fault in store_faults(tls_settings(one, config))]


def _remarks(config: "BrokerConfig") -> dict[str, list[str]]:
    from fencepost.cli.serve import open_listeners

    return {
        "without_effect": sorted(config.without_effect),
        "not_served": list(config.controller_listeners),
        "open_to_every_client": open_listeners(config),
    }
