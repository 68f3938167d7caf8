"""The output of `fencepost topic apply`: the differences, line by line, as in a diff."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from fencepost.cli.plain_text import cell, counted

if TYPE_CHECKING:
    from fencepost.client import KafkaError
    from fencepost.client.admin import Applied, PlannedChange

_SIGNS = {"create": "+", "change": "~", "delete": "-"}


def applied_text(done: "Applied", dry_run: bool) -> str:
    if not done.changes:
        return "Nothing to change: the cluster matches the plan."
    how = "at once" if done.atomic else "one after the other"
    what = counted(len(done.changes), "change")
    last = f"{what}, to be made {how}. Nothing was changed yet." if dry_run else f"{what}, made {how}."
    return f"{changes_text(done.changes)}\n{last}"


def changes_text(changes: "Iterable[PlannedChange]") -> str:
    """`+`, `~` and `-` for what is created, changed and deleted; each thing is above its settings."""
    things: dict[tuple[str, str], list[PlannedChange]] = {}
    for change in changes:
        things.setdefault((change.kind, change.name), []).append(change)
    lines: list[str] = []
    for (kind, name), some in things.items():
        whole = next((one for one in some if _is_whole(one)), None)
        sign = "~" if whole is None else _SIGNS[whole.action]
        lines.append(f"{sign} {kind} {cell(name or 'all')}{_partition_count(whole)}")
        lines += [f"{_SIGNS[one.action]}   {one.setting}: {_step(one)}" for one in some if one is not whole]
    return "\n".join(lines)


def _is_whole(one: "PlannedChange") -> bool:
    return one.action != "change" and one.setting in ("", "partitions")


def _partition_count(whole: "PlannedChange | None") -> str:
    if whole is None or not whole.setting:
        return ""
    count = whole.after if whole.action == "create" else whole.before
    if count is None or not count.isdigit():
        return f" ({count} partitions)" if count else ""
    return f" ({counted(int(count), 'partition')})"


def _step(one: "PlannedChange") -> str:
    if one.before is None:
        return cell(one.after)
    return f"{cell(one.before)} -> {'unset' if one.after is None else cell(one.after)}"


def applied_json(done: "Applied", dry_run: bool) -> dict[str, Any]:
    return {"changes": [one._asdict() for one in done.changes], "atomic": done.atomic, "dry_run": dry_run}


def refused_json(
    errors: "Mapping[str, KafkaError]", changes: "Iterable[PlannedChange]", dry_run: bool
) -> dict[str, Any]:
    """The refused things and the changes that were made, as an object."""
    return {
        "changes": [one._asdict() for one in changes],
        "refused": [
            {"what": subject, "error": None if error.code is None else error.code.name, "message": str(error)}
            for subject, error in errors.items()
        ],
        "dry_run": dry_run,
    }
