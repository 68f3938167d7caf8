"""`fencepost spark`: pipelines on Spark, from topic to topic, from topics to Parquet, and the audit of both."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fencepost.cli.parameters import SecondsType
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

if TYPE_CHECKING:
    from fencepost.spark_pipelines.auditing.findings import AuditReport

EXIT_FAULTS = 1


@click.group()
def spark() -> None:
    """Run pipelines on Spark that count every record exactly once, and prove that they did.

    \b
      fencepost spark etl orders --to invoices ...   records of one topic, reshaped, into another
      fencepost spark export orders --into ./lake    committed records as Parquet files
      fencepost spark audit orders                   no record lost, none twice: proven, with a picture

    Only committed records are read. Kill any of them at any moment and start it again with the same words: it goes on
    where it was, and nothing is there twice. They work against Apache Kafka, too.

    They need PySpark and Java 17, and say how to get what is missing. Exit code 0: done, 1: it failed, was refused or
    found faults, 2: wrong usage, 130: stopped by Ctrl-C.
    """


@spark.command("audit")
@click.argument("topics", nargs=-1)
@click.option(
    "--data",
    "directories",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="The data directory of a stopped broker, instead of a running one; repeatable.",
)
@click.option("--local", is_flag=True, help="Read in this process, without Spark: for logs of up to some 100 MB.")
@click.option("--html", "page", type=click.Path(path_type=Path, dir_okay=False), help="Write the report here as well.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of text.")
@broker_options
@spark_options
def audit_command(
    topics: tuple[str, ...],
    directories: tuple[Path, ...],
    local: bool,
    page: Path | None,
    as_json: bool,
    bootstrap: str,
    start_spark: Callable[[str], Any],
) -> None:
    """Prove that topics hold each record exactly once, or say where they do not.

    \b
    Every batch and marker is read, and these rules are held against them:
      offsets are dense: holes are explained (retention, compaction) or faults
      no (producer id, epoch, sequence) twice, none left out, no epoch that falls
      every transaction is closed by a marker, or is open and known to its coordinator
      the list of aborted transactions, by which readers filter, is that of the markers
      the last stable offset is where the oldest open transaction begins
      every batch is as it was written (CRC-32C)

    Without TOPICS all that are not internal are audited. A topic may be written to meanwhile: it is audited up to the
    high watermark of the beginning. Exit code 1 where a fault is found.

    \b
    Examples:
      fencepost spark audit orders invoices
      fencepost spark audit --data ./data --html audit.html
      fencepost spark audit --data ./data --local --json | jq .faults
    """
    from fencepost.spark_pipelines import audit

    if not as_json:
        need_rich()
    with report_errors(bootstrap):
        session = None if local else start_spark("audit")
        where: dict[str, Any] = {"directories": directories} if directories else {"kafka": kafka_settings(bootstrap)}
        with bar("auditing") as advance:
            report = audit(topics, spark=session, advance=advance, **where)
        _tell(report, page, as_json)
    sys.exit(0 if report.sound else EXIT_FAULTS)


def _tell(report: AuditReport, page: Path | None, as_json: bool) -> None:
    from fencepost.spark_pipelines.auditing.picture import html
    from fencepost.spark_pipelines.auditing.terminal import show

    if page is not None:
        page.write_text(html(report), encoding="utf-8")
    if as_json:
        click.echo(json.dumps(report.as_dict(), indent=2))
        return
    show(report)
    if page is not None:
        click.echo(f"The report with its picture: {page}")


@spark.command("export")
@click.argument("topics", nargs=-1, required=True)
@click.option("--into", "target", required=True, metavar="DIRECTORY", help="Where the batch=... directories go.")
@click.option(
    "--batch-records",
    type=click.IntRange(min=1),
    default=1_000_000,
    show_default=True,
    help="About so many in each batch.",
)
@click.option("--headers", is_flag=True, help="The records' headers as well.")
@click.option(
    "--follow",
    "seconds",
    type=SecondsType(at_least=0.1),
    metavar="DURATION",
    help="Go on, and look for more records this often.",
)
@click.option(
    "--allow-data-loss", is_flag=True, help="Go on where retention removed records before they were exported."
)
@shape_options
@broker_options
@spark_options
def export_command(
    topics: tuple[str, ...],
    target: str,
    batch_records: int,
    headers: bool,
    seconds: float | None,
    allow_data_loss: bool,
    where: str | None,
    select: str | None,
    sql: str | None,
    function: str | None,
    bootstrap: str,
    start_spark: Callable[[str], Any],
) -> None:
    """Write committed records as Parquet, each exactly once.

    DIRECTORY gets a directory for each batch: its Parquet files and, in _manifest.json, from which offsets to which
    they go. Both appear by one rename, so that readers see whole batches, and an export that was killed goes on behind
    the last one. Read it with spark.read.parquet(DIRECTORY), DuckDB, pandas, whatever reads Parquet.

    Without --follow it ends with what is committed when it starts. --where, --select, --sql and --function see the
    columns key, value, topic, partition, offset, timestamp, timestampType and, with --headers, headers.

    \b
    Examples:
      fencepost spark export orders --into ./lake/orders
      fencepost spark export orders --into ./lake/big --where "length(value) > 1000" --follow 30
      fencepost spark export orders --into ./lake/json --select "offset, from_json(cast(value as string), 'id INT').*"
    """
    from fencepost.spark_pipelines import export

    with report_errors(bootstrap):
        shape = shape_of(where, select, sql, function)
        session = start_spark("export")
        rows = count = 0
        with bar("exporting") as advance:
            for manifest in export(
                session,
                topics,
                target,
                kafka=kafka_settings(bootstrap),
                shape=shape,
                batch_records=batch_records,
                headers=headers,
                follow_seconds=seconds,
                fail_on_data_loss=not allow_data_loss,
                advance=advance,
            ):
                rows, count = rows + manifest.rows, count + 1
                size = sum(manifest.files.values()) / (1 << 20)
                click.echo(f"batch {manifest.batch}: {manifest.rows:,} rows, {size:,.1f} MiB", err=True)
    click.echo(f"{rows:,} rows in {count} new batch{'es' if count != 1 else ''}: {target} holds all that is committed")


@spark.command("etl")
@click.argument("sources", nargs=-1, required=True)
@click.option("--to", "target", metavar="TOPIC", help="Where the records go; else their column `topic` says it.")
@click.option(
    "--checkpoint",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Where Spark keeps the position: start again with the same. It belongs to this one pipeline.",
)
@click.option("--to-bootstrap", metavar="HOST:PORT", help="Another cluster to write to.")
@click.option("--from", "starting", type=click.Choice(("earliest", "latest")), default="earliest", show_default=True)
@click.option("--headers", is_flag=True, help="The records' headers as well.")
@click.option("--every", metavar="TIME", help='Go on for ever, a micro-batch every so often, such as "10 seconds".')
@click.option("--max-records", type=click.IntRange(min=1), help="So many in a micro-batch at most.")
@click.option(
    "--sink", "sink", multiple=True, type=SETTING, metavar="NAME=VALUE", help="An option of the sink; repeatable."
)
@shape_options
@broker_options
@spark_options
def etl_command(sources: tuple[str, ...], **given: Any) -> None:
    """Copy committed records from topic to topic, reshaped on the way, each exactly once.

    Each micro-batch is one transaction in the target. The position in the sources is in the checkpoint, and the batch's
    number goes into the same transaction as its records: kill it whenever you like, and start it again.

    Without --every it ends with what is committed when it starts. Keys and values are passed on as they are unless
    --select, --sql or --function make columns of their own: value, and if you like key, headers, partition, topic.

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
