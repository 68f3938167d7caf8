"""What a shell completes from the broker: functions for `shell_complete` of arguments and options.

Whatever fails, nothing is completed and nothing is printed: it would appear in the line that the user types.
"""

import re

import click

SAFE_NAME = re.compile(r"[\w.@%+=:/-]+", re.ASCII)
"""Names that a shell takes as they are. A client chose them, and a shell would run what others hold: `$(...)`."""


def complete_topics(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Topics; internal ones if the name begins with an underscore."""
    return [name for name in _names("topics", context, incomplete) if incomplete or not name.startswith("__")]


def complete_groups(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Groups of all brokers."""
    return _names("groups", context, incomplete)


def complete_transactional_ids(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Transactional ids of all coordinators."""
    return _names("transactional ids", context, incomplete)


def complete_config_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The name after `topic` or `group`."""
    kinds = {"topic": complete_topics, "group": complete_groups}
    complete = kinds.get(context.params.get("kind") or "")
    return [] if complete is None else complete(context, parameter, incomplete)


def _names(kind: str, context: click.Context, incomplete: str) -> list[str]:
    from fencepost.cli.completion.asking import ask

    taken = {value for given in context.params.values() if isinstance(given, tuple) for value in given}
    found = {name for name in ask(kind, context) if name.startswith(incomplete) and name not in taken}
    return sorted(name for name in found if SAFE_NAME.fullmatch(name))
