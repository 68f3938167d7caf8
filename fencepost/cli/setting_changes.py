"""Changes of settings of topics, brokers and groups, with the values before and after."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from fencepost.cli.connect import print_json
from fencepost.cli.plain_text import cell, table
from fencepost.client import KafkaError
from fencepost.client.admin.plan_types import own_source
from fencepost.client.admin.types import HIDDEN, is_secret
from fencepost.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from fencepost.client.admin import Admin, ConfigEntry, ConfigResource


AT_ONCE = 200
"""How many resources one request names; a topic's settings with their documentation are some 20 KB."""
WITHOUT_EFFECT = "No effect here"
"""The beginning of a fencepost broker's documentation of a setting that has no effect there."""


class Step(NamedTuple):
    """One changed setting: the values before and after, and a remark."""

    subject: str
    name: str
    before: str | None
    after: str | None
    sensitive: bool = False
    remark: str = ""


async def settings_of(admin: "Admin", subject: Mapping[str, Any]) -> "dict[str, ConfigEntry]":
    """All settings, with their documentation if the broker supports it. Raises KafkaError."""
    try:
        return await admin.describe_configs(**subject, documentation=True)
    except KafkaError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        return await admin.describe_configs(**subject)  # before Kafka 2.6


async def settings_of_several(
    admin: "Admin", resources: "Sequence[ConfigResource]"
) -> "dict[ConfigResource, dict[str, ConfigEntry]]":
    """As `settings_of` for many resources, some hundred in each request. It skips topics that are deleted meanwhile.

    Raises KafkaError.
    """
    from fencepost.client.admin import ItemsFailedError
    from fencepost.client.admin.client import parts_of

    describe = parts_of(admin).configs.describe_resources
    found: dict[ConfigResource, dict[str, ConfigEntry]] = {}
    documentation = True
    for first in range(0, len(resources), AT_ONCE):
        some = resources[first : first + AT_ONCE]
        try:
            try:
                found |= await describe(some, documentation=documentation)
            except KafkaError as error:
                if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                    raise
                documentation = False  # before Kafka 2.6
                found |= await describe(some)
        except ItemsFailedError as errors:
            failed = [one for one in errors.errors.values() if one.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
            if failed:
                raise failed[0] from None
            found |= errors.results
    return found


async def changed(
    admin: "Admin",
    subject: Mapping[str, Any],
    changes: Mapping[str, str | None],
    *,
    append: Mapping[str, str] | None = None,
    subtract: Mapping[str, str] | None = None,
    dry_run: bool = False,
) -> list[Step]:
    """Change settings of one resource and return the values before and after. Raises KafkaError."""
    before = await settings_of(admin, subject)
    await admin.incremental_alter_configs(changes, append=append, subtract=subtract, validate_only=dry_run, **subject)
    names = [*changes, *(append or {}), *(subtract or {})]
    own = own_source(*next(iter(subject.items())))
    planned = {name: _planned(before, name, own, changes, append or {}, subtract or {}) for name in names}
    steps = []
    for name in names:
        entry = before.get(name)
        held = None if entry is None else entry.value
        hidden = is_secret(name, entry)
        remark = "has no effect here" if entry is not None and is_without_effect(entry) else ""
        steps.append(Step(_shown(subject), name, held, planned[name], hidden, remark))
    return steps


def _planned(
    before: "Mapping[str, ConfigEntry]",
    name: str,
    own: int,
    changes: Mapping[str, str | None],
    append: Mapping[str, str],
    subtract: Mapping[str, str],
) -> str | None:
    """The value after the change, as far as the client can know it: a list, a value, or that of the next source."""
    entry = before.get(name)
    if name in append or name in subtract:
        parts = [part for part in ((entry.value if entry else None) or "").split(",") if part]
        given = (append.get(name) or subtract.get(name) or "").split(",")
        if name in append:
            return ",".join([*parts, *(part for part in given if part not in parts)])
        return ",".join(part for part in parts if part not in given)
    if changes[name] is not None:
        return changes[name]
    inherited = [one for one in entry.synonyms if one.source != own] if entry is not None else []
    return inherited[0].value if inherited else None


def _shown(subject: Mapping[str, Any]) -> str:
    ((kind, name),) = subject.items()
    return f"{kind} {name if name != '' else 'all'}"


def is_without_effect(entry: "ConfigEntry") -> bool:
    return (entry.documentation or "").startswith(WITHOUT_EFFECT)


def shown_value(value: str | None, sensitive: bool) -> str:
    if sensitive:
        return HIDDEN
    return "not set" if value is None else cell(value) if value else '""'


def print_steps(steps: Sequence[Step], dry_run: bool, as_json: bool) -> None:
    """Print the changes, or those of a dry run."""
    if as_json:
        print_json([step_json(step, dry_run) for step in steps])
        return
    click.echo(steps_text(steps))
    if dry_run:
        click.echo("Nothing was changed (--dry-run).", err=True)


def steps_text(steps: Sequence[Step]) -> str:
    rows = [
        (
            step.subject,
            step.name,
            shown_value(step.before, step.sensitive),
            shown_value(step.after, step.sensitive),
            step.remark or ("as before" if step.before == step.after and not step.sensitive else ""),
        )
        for step in steps
    ]
    return table(("WHOSE", "SETTING", "BEFORE", "AFTER", ""), rows)


def step_json(step: Step, dry_run: bool) -> dict[str, Any]:
    return {
        "subject": step.subject,
        "name": step.name,
        "before": step.before,
        "after": None if step.sensitive else step.after,
        "remark": step.remark or None,
        "dry_run": dry_run,
    }
