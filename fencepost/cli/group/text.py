"""The output of `fencepost group`: groups, members, lag and new offsets."""

from typing import TYPE_CHECKING, Any

from fencepost.cli.connect import command_for
from fencepost.cli.plain_text import cell, counted, places, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fencepost.client.admin.lag import Move, PartitionLag
    from fencepost.client.admin.types import GroupDescription

PLACES_MAX = 12
"""How many partitions of one member a line names."""


def describe_text(described: "GroupDescription", committed: int, bootstrap: str) -> str:
    facts = [
        ("group", cell(described.group_id)),
        ("state", described.state),
        ("protocol", f"{described.protocol_type or 'none: no member has ever joined'} {described.protocol}".strip()),
        ("members", len(described.members)),
        ("committed", counted(committed, "offset")),
    ]
    lines = [f"{name:<12}{value}" for name, value in facts]
    if described.members:
        rows = [
            (member.member_id, member.instance_id, member.client_id, member.client_host, _reads(member.partitions))
            for member in described.members
        ]
        lines += ["", table(("MEMBER", "STATIC PLACE", "CLIENT", "HOST", "READS"), rows)]
    lines += ["", "How far it is:", f"  {command_for(bootstrap, 'group', 'lag', described.group_id)}"]
    return "\n".join(lines)


def _reads(partitions: "Sequence[Any]") -> str:
    shown = places(sorted(partitions)[:PLACES_MAX])
    more = len(partitions) - PLACES_MAX
    return f"{shown} and {more} more" if more > 0 else shown


def lag_text(found: "Mapping[str, Sequence[PartitionLag]]", read_mib: float) -> str:
    """All groups' lag in one table, with sums and an explanation of the numbers."""
    rows = []
    for name, lags in found.items():
        for one in lags:
            rows.append(
                (
                    name,
                    places([one.partition]),
                    "none" if one.committed is None else one.committed,
                    one.last_stable_offset,
                    _records(one),
                    one.held_back or "",
                    one.lost or "",
                    one.owner,
                )
            )
    head = ("GROUP", "PARTITION", "COMMITTED", "LSO", "LAG", "HELD BACK", "LOST", "READ BY")
    lines = [table(head, rows), ""]
    for name, lags in found.items():
        if not lags:
            continue
        total = sum(one.records or 0 for one in lags)
        exact = all(one.exact for one in lags)
        lines.append(f"{cell(name)}: {'' if exact else 'at most '}{counted(total, 'record')} to come")
    lines.append("LAG counts visible committed records: no transaction markers, nothing aborted.")
    if any(not one.exact for lags in found.values() for one in lags):
        lines.append(f"<=N: more than {read_mib:g} MiB would have to be read; N counts offsets. --read MIB reads more.")
    return "\n".join(lines)


def _records(one: "PartitionLag") -> str | int:
    if one.records is None:
        return "-"
    return one.records if one.exact else f"<={one.records}"


def lag_json(name: str, one: "PartitionLag") -> dict[str, Any]:
    return {
        "group": name,
        "partition": f"{one.partition.topic}:{one.partition.partition}",
        "committed": one.committed,
        "log_start_offset": one.log_start_offset,
        "last_stable_offset": one.last_stable_offset,
        "high_watermark": one.high_watermark,
        "lag_records": one.records,
        "exact": one.exact,
        "counts": "visible committed records",
        "held_back": one.held_back,
        "lost": one.lost,
        "read_by": one.owner,
    }


def moves_text(moves: "Sequence[Move]") -> str:
    rows = [
        (places([move.partition]), "none" if move.before is None else move.before, move.after, _step(move), move.remark)
        for move in moves
    ]
    return table(("PARTITION", "BEFORE", "AFTER", "OFFSETS", ""), rows)


def _step(move: "Move") -> str:
    if move.before is None:
        return "-"
    return f"{move.after - move.before:+d}" if move.after != move.before else "same"


def no_positions_text(groups: "Sequence[str]") -> str:
    """Why there is no lag of these groups, or of all groups if there is none."""
    if not groups:
        return "No positions: no consumer group exists; `fencepost queue list` shows share groups."
    has, reads = ("has", "reads") if len(groups) == 1 else ("have", "read")
    return f"No positions: {', '.join(map(repr, groups))} {has} committed nothing and {reads} nothing."
