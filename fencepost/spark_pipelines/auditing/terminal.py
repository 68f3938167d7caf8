"""Prints the audit's report on a terminal, with a strip of offsets for each partition. Needs rich."""

from __future__ import annotations

from collections import Counter
from typing import Any

from fencepost.spark_pipelines.auditing.findings import (
    ABORTED,
    CLASSES,
    COMMITTED,
    HOLES,
    MARKERS,
    OPEN,
    AuditReport,
    counted,
)
from fencepost.spark_pipelines.auditing.findings import PartitionReport as Partition

_STYLES = {COMMITTED: "green", ABORTED: "yellow", OPEN: "blue", MARKERS: "bright_black", HOLES: "white"}
_SIGNS = {COMMITTED: "█", ABORTED: "▒", OPEN: "░", MARKERS: "|", HOLES: "·"}
"""A different character for each class, so that the strip is readable without colours."""
_LISTED = 12


def show(report: AuditReport, console: Any = None) -> None:
    """Print the report on rich's `console`."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = console or Console(highlight=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("partition", overflow="fold")
    for name in ("offsets", "committed", "aborted", "open", "commits", "aborts", "LSO", "faults"):
        table.add_column(name, justify="right")
    for one in report.partitions:
        figures = (one.committed, one.aborted, one.open_records, one.commits, one.aborts, one.last_stable_offset)
        faults = Text(f"{one.faults_in_all:,}", style="bold red" if one.faults_in_all else "")
        table.add_row(one.name, f"{one.start:,}-{one.end:,}", *(f"{figure:,}" for figure in figures), faults)
    console.print(table)
    console.print()
    width = max(20, min(120, console.width) - 4)
    for one in report.partitions:
        _partition(console, one, width)
    legend = Text("  ".join(f"{_SIGNS[name]} {name}" for name in CLASSES), style="dim")
    console.print(legend)
    console.print(Text(report.verdict(), style="bold green" if report.sound else "bold red"))
    size = report.total("size_bytes") / (1 << 20)
    console.print(
        Text(f"{counted(report.total('batches'), 'batch')}, {size:,.1f} MiB, {report.seconds:.1f} s", style="dim")
    )


def strip(one: Partition, width: int) -> list[tuple[str, str, bool]]:
    """For each column of the strip: its character, its style, and whether it has a fault."""
    if not one.strip:
        return []
    per_column = -(-len(one.strip) // width)
    faults = {max(0, fault.offset - one.start) // one.cell_offsets // per_column for fault in one.faults}
    columns = []
    for number, at in enumerate(range(0, len(one.strip), per_column)):
        inside: Counter[str] = Counter()
        for cell in one.strip[at : at + per_column]:
            inside.update(cell)
        # A marker is one offset. It is shown only in a cell without records.
        data = {name: count for name, count in inside.items() if name != MARKERS} or dict(inside)
        most = max(data, key=lambda name: data[name]) if data else HOLES
        columns.append((_SIGNS[most], _STYLES[most], number in faults))
    if faults and max(faults) >= len(columns):
        columns[-1] = (*columns[-1][:2], True)
    return columns


def _partition(console: Any, one: Partition, width: int) -> None:
    from rich.text import Text

    console.print(Text(one.name, style="bold"), Text(f"{one.start:,} to {one.end:,}", style="dim"))
    columns = strip(one, width)
    console.print(Text.assemble("  ", *((sign, style) for sign, style, _ in columns)), no_wrap=True, overflow="crop")
    if any(fault for *_, fault in columns):
        ticks = "".join("▲" if fault else " " for *_, fault in columns)
        console.print(Text("  " + ticks, style="bold red"), no_wrap=True, overflow="crop")
    for fault in one.faults[:_LISTED]:
        console.print(Text(f"  fault at {fault}", style="red"))
    if one.faults_in_all > _LISTED:
        console.print(Text(f"  and {one.faults_in_all - _LISTED:,} more; --html or --json lists them", style="red"))
    for meaning in one.meanings():
        console.print(Text(f"  {meaning}", style="red"))
    for hole in one.holes[:_LISTED]:
        console.print(Text(f"  offsets {hole.first:,} to {hole.last:,}: {hole.why}", style="dim"))
    for left in one.open[:_LISTED]:
        what = f"open since offset {left.first_offset:,}: producer {left.producer_id} epoch {left.producer_epoch}"
        console.print(Text(f"  {what}, {counted(left.records, 'record')}; {left.why}", style="blue"))
    for note in one.notes:
        console.print(Text(f"  {note}", style="dim"))
    console.print()
