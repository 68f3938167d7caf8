"""`fencepost verify`: check a data directory from end to end and report all damage."""

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fencepost.cli.connect import fail
from fencepost.cli.plain_text import counted

if TYPE_CHECKING:
    from fencepost.broker.log.verify.report import Finding, Report

EXIT_DAMAGED = 1
EXIT_USAGE = 2
_MIB = 1 << 20


@click.command()
@click.argument("directory", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--topic", help="Check only the partitions of this topic.")
@click.option("--partition", type=click.IntRange(min=0), help="Check only partitions with this number.")
@click.option("--shallow", is_flag=True, help="Check only checksums and headers, not the records.")
@click.option("--json", "as_json", is_flag=True, help="Write JSON instead of text, errors too.")
def verify(directory: Path, topic: str | None, partition: int | None, shallow: bool, as_json: bool) -> None:
    """Check every byte of a data directory. Stop its broker first. The check writes nothing.

    \b
    It checks, partition by partition:
      batches      CRC-32C, lengths, offsets, leader epochs, records
      indexes      .index, .timeindex, .txnindex and .seal against the batches
      snapshots    producers and open transactions against a replay of the log
      small files  checkpoints, partition.metadata, meta.properties
      other files  files that a crash or another program left

    Each finding is one line: its level, the file, byte and offset, the error, its consequence, and what to do.

    \b
      damage    durable data is damaged, or differs from the written data: exit code 1
      warning   a defect that loses no data
      note      a normal result of kill -9 or a power cut; the next start repairs it

    \b
    An incomplete end of a log after a crash is a note if it lies above the recovery point: no client got an
    acknowledgement for it. Exit code 0: no damage; 1: damage; 2: wrong usage, no data directory, or one in use.

    \b
    Examples:
      fencepost verify ./data
      fencepost verify ./data --topic orders --partition 3
      fencepost verify ./data --json | jq .findings
    """
    from fencepost.broker.log.storage.lock import DirectoryInUse, lock_shared
    from fencepost.broker.log.verify.report import Report

    try:
        lock_fd = lock_shared(directory)
    except DirectoryInUse:
        fail(f"a broker runs on {directory}; stop it first, or check a copy or a snapshot", exit_code=EXIT_USAGE)
    report = Report() if as_json else Report(found=_print_finding)
    began = time.monotonic()
    try:
        _run(directory, report, topic, partition, shallow, as_json)
    except LookupError as error:
        fail(error.args[0], exit_code=EXIT_USAGE)
    except OSError as error:
        fail(f"{directory} cannot be read: {error}", exit_code=EXIT_DAMAGED)
    finally:
        if lock_fd is not None:
            os.close(lock_fd)
    _sum_up(report, time.monotonic() - began, as_json)
    sys.exit(EXIT_DAMAGED if report.damaged else 0)


def _run(
    directory: Path, report: "Report", topic: str | None, partition: int | None, shallow: bool, as_json: bool
) -> None:
    """Check, with a bar on a terminal. Raises LookupError and OSError."""
    from fencepost.broker.verification import verify as check

    if as_json or not sys.stderr.isatty():
        check(directory, report, topic=topic, partition=partition, shallow=shallow)
        return
    with click.progressbar(length=1, label="checking", file=sys.stderr, show_pos=False) as bar:

        def begin(total_bytes: int) -> None:
            bar.length = max(1, total_bytes)
            report.advance = bar.update

        check(directory, report, topic=topic, partition=partition, shallow=shallow, begin=begin)
        bar.update(0)


def _print_finding(finding: "Finding") -> None:
    click.echo(str(finding))


def _sum_up(report: "Report", seconds: float, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({**report.as_dict(), "seconds": round(seconds, 3)}, indent=2))
        return
    counts = {level: sum(f.level.value == level for f in report.findings) for level in ("damage", "warning", "note")}
    click.echo(
        f"{counted(len(report.partitions), 'partition')}, {counted(report.segments, 'segment')},"
        f" {counted(report.batches, 'batch')}, {counted(report.records, 'record')},"
        f" {report.size_bytes / _MIB:.1f} MiB in {seconds:.1f} s: {counts['damage']} damaged,"
        f" {counted(counts['warning'], 'warning')}, {counted(counts['note'], 'note')}"
    )
