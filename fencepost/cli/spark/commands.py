"""`fencepost spark`: pipelines on Spark from topic to topic and from topics to Parquet, and the audit of topics."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fencepost.cli.parameters import SecondsType
from fencepost.cli.spark.compact import compact_command
from fencepost.cli.spark.options import (
    SETTING,
    bar,
    broker_options,
    kafka_settings,
    need_rich,
    report_errors,
    shape_of,
    shape_options,
    spark_options,
)
from fencepost.cli.spark.stores import store_errors, store_settings
from fencepost.cli.spark.tables import (
    AuditedTable,
    TableOptions,
    audited_table_options,
    print_table_report,
    written_table_options,
)

if TYPE_CHECKING:
    from fencepost.spark_pipelines.auditing.findings import AuditReport

EXIT_FAULTS = 1


@click.group()
def spark() -> None:
    """Run exactly-once pipelines on Spark, and check topics and tables for lost and duplicated records.

    \b
      fencepost spark etl orders --to invoices ...   transform the records of one topic into another
      fencepost spark export orders --into ./lake    write committed records as Parquet files or into a table
      fencepost spark audit orders                   check that no record is lost or there twice
      fencepost spark compact prices --store ...     compact topics of a cluster without loading its brokers

    The pipelines read committed records only. You can kill one at any moment. Start it again with the same options: it
    continues where it was, and writes no record twice. All commands work with Apache Kafka, too.

    They need PySpark and Java 17, and print how to install what is missing. Exit code 0: done; 1: failed, refused, or
    faults found; 2: wrong usage; 130: stopped by Ctrl-C.
    """


@spark.command("audit")
@click.argument("topics", nargs=-1)
@click.option(
    "--data",
    "directories",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Read the data directory of a stopped broker, instead of a running broker; repeatable.",
)
@click.option(
    "--store",
    metavar="postgresql://...",
    help="Read the stores of a cluster, instead of a running broker: the database that orders its logs.",
)
@click.option("--objects", metavar="s3://BUCKET/PREFIX", help="The object store of that cluster.")
@click.option("--local", is_flag=True, help="Read in this process, without Spark: for logs of up to about 100 MB.")
@click.option(
    "--html",
    "page",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write the report to this file, as HTML.",
)
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document instead of text.")
@audited_table_options
@broker_options
@spark_options
def audit_command(
    topics: tuple[str, ...],
    directories: tuple[Path, ...],
    store: str | None,
    objects: str | None,
    local: bool,
    page: Path | None,
    as_json: bool,
    audited_table: AuditedTable | None,
    bootstrap: str,
    start_spark: Callable[[str], Any],
) -> None:
    """Check that topics hold each record exactly once, and show where they do not.

    \b
    The audit reads every batch and marker, and checks these rules:
      offsets are dense: retention and compaction explain holes, all other holes are faults
      no (producer id, epoch, sequence) is there twice, none is missing, no epoch decreases
      every transaction is closed by a marker, or is open and known to its coordinator
      the list of aborted transactions, by which readers filter, matches the markers
      the last stable offset is where the oldest open transaction begins
      every batch is unchanged since it was written (CRC-32C)

    With --store it checks a whole cluster as its database and objects have it at one instant, and asks no broker:
      every row agrees with its batches: place, size, offsets, headers, producer ids, largest timestamp
      the bytes of every row are in the stores, and no object that a row names is due for deletion
      the transaction coordinators' logs of the same instant agree with all markers

    
    Without TOPICS it audits all topics that are not internal; with --store, internal ones too. Producers may
    continue to write: the audit ends at the high watermark of its start. Exit code 1 if it finds a fault.

    \b
    Examples:
      fencepost spark audit orders invoices
      fencepost spark audit --data ./data --html audit.html
      fencepost spark audit --data ./data --local --json | jq .faults
      fencepost spark audit --store postgresql://reader@db/fencepost --objects s3://bucket/prefix
      fencepost spark audit orders --table ./lake/orders --format delta
    """
    from fencepost.spark_pipelines import audit

    if not as_json:
        need_rich()
    if audited_table is not None:
        if directories or store or objects or local or page:
            raise click.UsageError("--table compares with a running broker: leave --data, --store, --local, --html out")
        with report_errors(bootstrap), bar("comparing") as advance:
            found = audited_table.report(topics, kafka_settings(bootstrap), start_spark, advance)
        print_table_report(found, as_json)
        sys.exit(0 if found.sound else EXIT_FAULTS)
    source = _source_of(directories, store, objects, bootstrap)
    with report_errors(bootstrap), store_errors():
        session = None if local else start_spark("audit")
        with bar("auditing") as advance:
            report = audit(topics, spark=session, advance=advance, **source)
        _print_report(report, page, as_json)
    sys.exit(0 if report.sound else EXIT_FAULTS)


def _source_of(directories: tuple[Path, ...], store: str | None, objects: str | None, bootstrap: str) -> dict[str, Any]:
    """What the audit reads, as keyword arguments. Raises UsageError."""
    kafka = kafka_settings(bootstrap)
    if store is None and objects is None:
        return {"directories": directories} if directories else {"kafka": kafka}
    if directories:
        raise click.UsageError("name data directories or the stores of a cluster, not both")
    return {"stores": store_settings(store, objects, kafka)}


def _print_report(report: AuditReport, page: Path | None, as_json: bool) -> None:
    from fencepost.spark_pipelines.auditing.picture import html
    from fencepost.spark_pipelines.auditing.terminal import show

    if page is not None:
        page.write_text(html(report), encoding="utf-8")
    if as_json:
        click.echo(json.dumps(report.as_dict(), indent=2))
        return
    show(report)
    if page is not None:
        click.echo(f"The report as HTML: {page}")


@spark.command("export")
@click.argument("topics", nargs=-1, required=True)
@click.option(
    "--into",
    "target",
    required=True,
    metavar="PLACE",
    help="Create the batch=... directories in this directory; or write into the table of this location or name.",
)
@written_table_options
@click.option(
    "--batch-records",
    type=click.IntRange(min=1),
    default=1_000_000,
    show_default=True,
    help="Write about this many records in each batch.",
)
@click.option("--headers", is_flag=True, help="Also read and write the records' headers.")
@click.option(
    "--follow",
    "seconds",
    type=SecondsType(at_least=0.1),
    metavar="DURATION",
    help="Continue, and look for new records at this interval.",
)
@click.option("--allow-data-loss", is_flag=True, help="Continue if retention deleted records before their export.")
@click.option(
    "--whole-transactions",
    is_flag=True,
    help="Keep all records of a transaction in one batch; the export waits where transactions overlap without end.",
)
@shape_options
@broker_options
@spark_options
def export_command(
    topics: tuple[str, ...],
    target: str,
    table_options: TableOptions,
    batch_records: int,
    headers: bool,
    seconds: float | None,
    allow_data_loss: bool,
    whole_transactions: bool,
    where: str | None,
    select: str | None,
    sql: str | None,
    function: str | None,
    bootstrap: str,
    start_spark: Callable[[str], Any],
) -> None:
    """Write committed records as Parquet or into a table, each exactly once.

    PLACE gets a subdirectory for each batch, with its Parquet files and a _manifest.json that holds its first and last
    offsets. One rename publishes both. Readers therefore see whole batches, and a killed export continues after the
    last one. Read PLACE with spark.read.parquet(PLACE), DuckDB, pandas or any other reader of Parquet.

    With --whole-transactions a batch holds all records of a transaction or none, over all partitions, so it may be
    larger than --batch-records.

    With --format delta or iceberg each batch is one commit of the table, which holds the position, too. The table may
    be in an object store, and others may read and write it meanwhile. Spark needs no package for it, but Python does:
    deltalake or pyiceberg.

    Without --follow it ends after the records that were committed at its start. --where, --select, --sql and --function
    get the columns key, value, topic, partition, offset, timestamp, timestampType and, with --headers, headers.

    \b
    Examples:
      fencepost spark export orders --into ./lake/orders
      fencepost spark export orders --into ./lake/big --where "length(value) > 1000" --follow 30
      fencepost spark export orders --into ./lake/json --select "offset, from_json(cast(value as string), 'id INT').*"
      fencepost spark export orders --into s3://lake/orders --format delta --follow 30
      fencepost spark export orders --into shop.orders --format iceberg --partition-by "day(timestamp)"
    """
    from fencepost.spark_pipelines import export

    with report_errors(bootstrap):
        shape = shape_of(where, select, sql, function)
        into = table_options.open(target)
        session = start_spark("export")
        rows = count = 0
        with bar("exporting") as advance:
            for manifest in export(
                session,
                topics,
                into,
                kafka=kafka_settings(bootstrap),
                shape=shape,
                batch_records=batch_records,
                headers=headers,
                follow_seconds=seconds,
                fail_on_data_loss=not allow_data_loss,
                whole_transactions=whole_transactions,
                advance=advance,
            ):
                rows, count = rows + manifest.rows, count + 1
                size = sum(manifest.files.values()) / (1 << 20)
                click.echo(f"batch {manifest.batch}: {manifest.rows:,} rows, {size:,.1f} MiB", err=True)
    click.echo(f"{rows:,} rows in {count} new batch{'es' if count != 1 else ''}: {target} holds all committed records")


@spark.command("etl")
@click.argument("sources", nargs=-1, required=True)
@click.option(
    "--to", "target", metavar="TOPIC", help="Write to this topic.  [default: the topic that the column `topic` names]"
)
@click.option(
    "--checkpoint",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep the position in this directory. A restart needs the same one, and no other pipeline may use it.",
)
@click.option(
    "--to-bootstrap",
    metavar="HOST:PORT",
    help="Write to the cluster of this broker.  [default: the cluster of the sources]",
)
@click.option(
    "--from",
    "starting",
    type=click.Choice(("earliest", "latest")),
    default="earliest",
    show_default=True,
    help="Start here if the checkpoint is new.",
)
@click.option("--headers", is_flag=True, help="Also read and write the records' headers.")
@click.option(
    "--every", metavar="TIME", help='Run until stopped, with a micro-batch at this interval, such as "10 seconds".'
)
@click.option("--max-records", type=click.IntRange(min=1), help="Read at most this many records in a micro-batch.")
@click.option(
    "--sink", "sink", multiple=True, type=SETTING, metavar="NAME=VALUE", help="Set an option of the sink; repeatable."
)
@shape_options
@broker_options
@spark_options
def etl_command(sources: tuple[str, ...], **given: Any) -> None:
    """Copy committed records from topic to topic, each exactly once, and transform them on the way.

    Each micro-batch is one transaction in the target. The checkpoint holds the position in the sources, and the same
    transaction commits the batch's number with its records. You can kill the command at any moment and start it again.

    Without --every it ends after the records that were committed at its start. It copies keys and values unchanged,
    unless --select, --sql or --function return other columns: value, and optionally key, headers, partition, topic and
    timestamp.

    \b
    Examples:
      fencepost spark etl orders --to orders-copy --checkpoint ./state/copy
      fencepost spark etl orders --to large --where "length(value) > 1000" --checkpoint ./state/large
      fencepost spark etl orders --to per-customer --checkpoint ./state/per-customer --every "10 seconds" \\
          --sql "SELECT cast(key AS string) AS key, upper(cast(value AS string)) AS value FROM source"
      fencepost spark etl orders --to invoices --function billing.py:invoices --checkpoint ./state/invoices
    """
    from fencepost.cli.spark.etl import run_etl

    with report_errors(given["bootstrap"]):
        run_etl(sources, **given)


spark.add_command(compact_command)
