"""Changing settings, and telling what they were before and what holds after."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from fencepost.cli.config.text import is_without_effect
from fencepost.client.admin.plan_types import own_source
from fencepost.client.admin.types import is_secret

if TYPE_CHECKING:
    from fencepost.client.admin import Admin, ConfigEntry


class Step(NamedTuple):
    """One setting of one subject: what held, what holds now, and what the broker says that has no effect there."""

    subject: str
    name: str
    before: str | None
    after: str | None
    sensitive: bool = False
    remark: str = ""


async def settings_of(admin: "Admin", subject: Mapping[str, Any]) -> "dict[str, ConfigEntry]":
    """All settings, with what they mean where the broker tells it. Raises KafkaError."""
    from fencepost.client import KafkaError
    from fencepost.protocol.errors import ErrorCode

    try:
        return await admin.configs(**subject, documentation=True)
    except KafkaError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        return await admin.configs(**subject)  # before Kafka 2.6


async def changed(
    admin: "Admin",
    subject: Mapping[str, Any],
    changes: Mapping[str, str | None],
    *,
    append: Mapping[str, str] | None = None,
    subtract: Mapping[str, str] | None = None,
    dry_run: bool = False,
) -> list[Step]:
    """Change settings of one subject and look before and after. Raises KafkaError."""
    before = await settings_of(admin, subject)
    await admin.alter_configs(changes, append=append, subtract=subtract, validate_only=dry_run, **subject)
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
    """What holds with the change made, as far as the client can tell: a list's parts, a value, what stands behind."""
    entry = before.get(name)
    if name in append or name in subtract:
        parts = [part for part in ((entry.value if entry else None) or "").split(",") if part]
        given = (append.get(name) or subtract.get(name) or "").split(",")
        if name in append:
            return ",".join([*parts, *(part for part in given if part not in parts)])
        return ",".join(part for part in parts if part not in given)
    if changes[name] is not None:
        return changes[name]
    behind = [one for one in entry.synonyms if one.source != own] if entry is not None else []
    return behind[0].value if behind else None


def _shown(subject: Mapping[str, Any]) -> str:
    ((kind, name),) = subject.items()
    return f"{kind} {name if name != '' else 'all'}"
