"""`fencepost spark compact`: compact topics of a cluster by Spark, for the brokers to commit."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fencepost.cli.parameters import SecondsType
from fencepost.cli.plain_text import size, table
from fencepost.cli.spark.options import bar, report_errors, spark_options
from fencepost.cli.spark.stores import store_errors, store_settings

if TYPE_CHECKING:
    from fencepost.spark_pipelines.compacting import CompactedPartition

EXIT_NOT_COMMITTED = 1
WAIT_SECONDS = 120.0


@click.command("compact")
@click.argument("topics", nargs=-1, required=True)
@click.option(
    "--store",
    metavar="postgresql://...",
    help="The database of the cluster. [default: cluster.store, FENCEPOST_CLUSTER_STORE]",
)
@click.option(
    "--objects",
    metavar="s3://BUCKET/PREFIX",
    help="The object store of the cluster. [default: cluster.objects, FENCEPOST_CLUSTER_OBJECTS]",
)
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Take the stores, and the defaults of topics, from the brokers' file of settings.",
)
@click.option(
    "--newest",
    is_flag=True,
    help="Also compact rows behind the last full one. Brokers may merge them meanwhile, and refuse the result then.",
)
@click.option(
    "--map-bytes",
    type=click.IntRange(min=1024),
    help="Use so much memory for the keys of a partition.  [default: the brokers' log.cleaner.dedupe.buffer.size]",
)
@click.option(
    "--wait",
    "wait_seconds",
    type=SecondsType(at_least=0.0),
    default=WAIT_SECONDS,
    show_default="2m",
    metavar="DURATION",
    help="How long to wait for the brokers' answers.",
)
@click.option("--local", is_flag=True, help="Compact in this process, without Spark.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document instead of text.")
@spark_options
def compact_command(
    topics: tuple[str, ...],
    store: str | None,
    objects: str | None,
    config_file: Path | None,
    newest: bool,
    map_bytes: int | None,
    wait_seconds: float,
    local: bool,
    as_json: bool,
    start_spark: Callable[[str], Any],
) -> None:
    """Compact topics of a cluster by Spark's tasks, and let the brokers commit the result.

    The topics need cleanup.policy=compact. A task reads one partition from the stores, keeps the records that a
    broker's compaction keeps, writes them as new objects, and proposes the new rows in the database. The active broker
    finds the proposal within log.cleaner.backoff.ms, and checks it. It replaces the rows if they are still those that
    the task has read; otherwise it refuses, and deletes the new objects later. Readers notice nothing.

    Exit code 0: all is committed, or there was nothing to compact; 1: a broker refused, or has not answered yet.

    \b
    Examples:
      fencepost spark compact prices --store postgresql://spark@db/fencepost --objects s3://bucket/prefix
      fencepost spark compact prices --config broker.properties --map-bytes 2000000000 --wait 10m
    """
    from fencepost.cli.store.options import config_of
    from fencepost.spark_pipelines.compacting import Outcome, compact

    settings = store_settings(store, objects, {}, config_file)
    with report_errors(settings.database), store_errors():
        session = None if local else start_spark("compact")
        with bar("compacting") as advance:
            found = compact(
                topics,
                settings,
                config=config_of(store, objects, config_file),
                spark=session,
                newest=newest,
                map_bytes=map_bytes,
                wait_seconds=wait_seconds,
                advance=advance,
            )
    _print(found, as_json)
    done = {Outcome.COMMITTED, Outcome.CLEAN}
    sys.exit(0 if all(one.outcome in done for one in found) else EXIT_NOT_COMMITTED)


def _print(found: Sequence[CompactedPartition], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps([one._asdict() for one in found], indent=2))
        return
    head = ("partition", "records", "kept", "read", "written", "outcome")
    rows = [
        (
            f"{one.topic}-{one.partition}",
            f"{one.records_read:,}",
            f"{one.records_kept:,}",
            size(one.read_bytes),
            size(one.written_bytes),
            one.outcome.value,
        )
        for one in found
    ]
    click.echo(table(head, rows))
    for one in found:
        if one.why:
            click.echo(f"{one.topic}-{one.partition}: {one.why}")
