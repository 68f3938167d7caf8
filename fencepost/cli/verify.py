"""`fencepost verify`: check a data directory, or the stores of a cluster, and report all damage."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fencepost.cli.connect import fail
from fencepost.cli.findings import EXIT_DAMAGED, print_finding, progress, sum_up
from fencepost.cli.plain_text import counted

if TYPE_CHECKING:
    from fencepost.broker.log.verify.report import Report

EXIT_USAGE = 2


@click.command()
@click.argument("directory", required=False, type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--store", metavar="postgresql://...", help="Check a cluster: the database that orders its logs.")
@click.option("--objects", metavar="s3://BUCKET/PREFIX", help="The object store of that cluster.")
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Check a cluster: take cluster.store and cluster.objects from the broker's file of settings.",
)
@click.option("--topic", help="Check only the partitions of this topic.")
@click.option("--partition", type=click.IntRange(min=0), help="Check only partitions with this number.")
@click.option("--shallow", is_flag=True, help="Check only checksums and headers, not the records.")
@click.option("--json", "as_json", is_flag=True, help="Write JSON instead of text, errors too.")
def verify(
    directory: Path | None,
    store: str | None,
    objects: str | None,
    config_file: Path | None,
    topic: str | None,
    partition: int | None,
    shallow: bool,
    as_json: bool,
) -> None:
    """Check every byte of a data directory, or of a cluster's stores. The check writes nothing.

    The broker of a data directory has to be stopped. The brokers of a cluster may run.

    \b
    In a data directory it checks, partition by partition:
      batches      CRC-32C, lengths, offsets, leader epochs, records
      indexes      .index, .timeindex, .txnindex and .seal against the batches
      snapshots    producers and open transactions against a replay of the log
      small files  checkpoints, partition.metadata, meta.properties
      other files  files that a crash or another program left

    \b
    In the stores of a cluster it checks, log by log:
      rows         each begins where the one before it ended; start, end and size of the log
      objects      each row's object exists and is long enough; objects that no row refers to
      batches      CRC-32C, lengths, offsets, records; the headers and producer ids in the row
      snapshots    producers and open transactions against a replay of the log

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
      fencepost verify --store postgresql://app@db/fencepost --objects s3://bucket/prefix
    """
    if directory is None:
        from fencepost.cli.store.verifying import verify_cluster

        if store is None and config_file is None:
            raise click.UsageError("name a data directory, or a cluster with --store and --objects")
        verify_cluster(store, objects, config_file, topic, partition, shallow, as_json)
        return
    if store is not None or objects is not None or config_file is not None:
        raise click.UsageError("name a data directory or a cluster, not both")
    _verify_directory(directory, topic, partition, shallow, as_json)


def _verify_directory(directory: Path, topic: str | None, partition: int | None, shallow: bool, as_json: bool) -> None:
    from fencepost.broker.log.storage.lock import DirectoryInUse, all_locked
    from fencepost.broker.log.verify.report import Report

    report = Report() if as_json else Report(found=print_finding)
    began = time.monotonic()
    try:
        with all_locked(directory, shared=True):
            _run(directory, report, topic, partition, shallow, as_json)
    except DirectoryInUse:
        fail(f"a broker runs on {directory}; stop it first, or check a copy or a snapshot", exit_code=EXIT_USAGE)
    except LookupError as error:
        fail(error.args[0], exit_code=EXIT_USAGE)
    except OSError as error:
        fail(f"{directory} cannot be read: {error}", exit_code=EXIT_DAMAGED)
    sum_up(report, time.monotonic() - began, as_json, counted(report.segments, "segment"))


def _run(
    directory: Path, report: "Report", topic: str | None, partition: int | None, shallow: bool, as_json: bool
) -> None:
    """Check, with a bar on a terminal. Raises LookupError and OSError."""
    from fencepost.broker.verification import verify as check

    with progress(report, as_json) as begin:
        check(directory, report, topic=topic, partition=partition, shallow=shallow, begin=begin)
