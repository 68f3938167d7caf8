"""What the commands that look for damage print: findings, a bar, and the sum."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

import click

from fencepost.cli.plain_text import counted
from fencepost.cli.progress import progress_bar

if TYPE_CHECKING:
    from fencepost.broker.log.verify.report import Finding, Report

EXIT_DAMAGED = 1
_MIB = 1 << 20


@contextmanager
def progress(report: "Report", as_json: bool) -> "Iterator[Callable[[int], None]]":
    """A bar on a terminal. The caller gets a function that takes the number of bytes to read."""
    with progress_bar("checking", as_json) as begin:

        def begin_report(total_bytes: int) -> None:
            report.advance = begin(total_bytes)

        yield begin_report


def print_finding(finding: "Finding") -> None:
    click.echo(str(finding))


def sum_up(report: "Report", seconds: float, as_json: bool, *counts: str) -> NoReturn:
    """Print the sum, and exit. `counts` are what was read, besides partitions, batches and records."""
    if as_json:
        click.echo(json.dumps({**report.as_dict(), "seconds": round(seconds, 3)}, indent=2))
        sys.exit(EXIT_DAMAGED if report.damaged else 0)
    levels = {level: sum(f.level.value == level for f in report.findings) for level in ("damage", "warning", "note")}
    click.echo(
        f"{counted(len(report.partitions), 'partition')}, {', '.join(counts)},"
        f" {counted(report.batches, 'batch')}, {counted(report.records, 'record')},"
        f" {report.size_bytes / _MIB:.1f} MiB in {seconds:.1f} s: {levels['damage']} damaged,"
        f" {counted(levels['warning'], 'warning')}, {counted(levels['note'], 'note')}"
    )
    sys.exit(EXIT_DAMAGED if report.damaged else 0)
