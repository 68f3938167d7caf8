"""The options of `fencepost spark` that name a table, and the audit of a table against its topics."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fencepost.cli.spark.options import SETTING, shape_of, shape_options

if TYPE_CHECKING:
    from fencepost.spark_pipelines.tables.compare import TableReport
    from fencepost.spark_pipelines.tables.table import Table

F = TypeVar("F", bound=Callable[..., Any])
FORMATS = ("parquet", "delta", "iceberg")


@dataclass(frozen=True)
class TableOptions:
    """The values of `table_options`."""

    format: str
    catalog: str | None
    settings: tuple[tuple[str, str], ...]
    partition_by: tuple[str, ...] = ()
    merge_schema: bool = False

    def open(self, place: str) -> Table | str:
        """The table, or a directory of Parquet files. Raises UsageError, PipelineError."""
        if self.format != "iceberg" and self.catalog is not None:
            raise click.UsageError("--catalog is of Iceberg's tables: set --format iceberg, too")
        if self.format == "parquet":
            if self.settings or self.partition_by or self.merge_schema:
                raise click.UsageError(
                    "--table-option, --partition-by and --merge-schema are of tables: set --format delta or iceberg"
                )
            return place
        from fencepost.spark_pipelines import delta_table, iceberg_table

        if self.format == "delta":
            return delta_table(
                place,
                storage_options=dict(self.settings),
                partition_by=self.partition_by,
                merge_schema=self.merge_schema,
            )
        return iceberg_table(
            place,
            catalog=self.catalog or "default",
            properties=dict(self.settings),
            partition_by=self.partition_by,
            merge_schema=self.merge_schema,
        )


@dataclass(frozen=True)
class AuditedTable:
    """A table to compare with its topics, and how the export made its rows."""

    place: str
    options: TableOptions
    headers: bool
    shape: tuple[str | None, str | None, str | None, str | None]

    def report(
        self, topics: Sequence[str], kafka: dict[str, Any], start_spark: Callable[[str], Any], advance: Any
    ) -> TableReport:
        """Compare it. Raises UsageError, and the errors of `audit_table`."""
        from fencepost.spark_pipelines import audit_table

        if not topics:
            raise click.UsageError("name the topics of the export")
        table = self.options.open(self.place)
        if isinstance(table, str) and not Path(table).is_dir():
            raise click.UsageError(f"there is no directory {table}")
        shape = shape_of(*self.shape)
        session = start_spark("audit")
        return audit_table(session, topics, table, kafka=kafka, shape=shape, headers=self.headers, advance=advance)


def written_table_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a table that is written: the command gets `table_options`."""

    @functools.wraps(command)
    def call(
        table_format: str,
        catalog: str | None,
        settings: tuple[tuple[str, str], ...],
        partition_by: tuple[str, ...],
        merge_schema: bool,
        **more: Any,
    ) -> Any:
        options = TableOptions(table_format, catalog, settings, partition_by, merge_schema)
        return command(table_options=options, **more)

    wrapped = click.option("--merge-schema", is_flag=True, help="Add columns that the table does not have to it.")(call)
    wrapped = click.option(
        "--partition-by",
        "partition_by",
        multiple=True,
        metavar="COLUMN",
        help="Divide a new table by this column; for Iceberg also day(COLUMN), hour(COLUMN) and so on; repeatable.",
    )(wrapped)
    return _place_options(wrapped)


def audited_table_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--table and what belongs to it: the command gets `audited_table`, or None without --table."""

    @functools.wraps(command)
    def call(
        table: str | None,
        headers: bool,
        table_format: str,
        catalog: str | None,
        settings: tuple[tuple[str, str], ...],
        where: str | None,
        select: str | None,
        sql: str | None,
        function: str | None,
        **more: Any,
    ) -> Any:
        if table is None and (
            table_format != "parquet" or any((catalog, settings, headers, where, select, sql, function))
        ):
            raise click.UsageError("these options are of a table: name it with --table")
        options = TableOptions(table_format, catalog, settings)
        found = None if table is None else AuditedTable(table, options, headers, (where, select, sql, function))
        return command(audited_table=found, **more)

    wrapped = _place_options(shape_options(call))
    wrapped = click.option("--headers", is_flag=True, help="With --table: the export has the records' headers.")(
        wrapped
    )
    return click.option(
        "--table",
        metavar="PLACE",
        help="Compare what `export` wrote here with the topics, row by row; needs the options of the export.",
    )(wrapped)


def _place_options(command: F) -> F:
    """--format, --catalog and --table-option."""
    for option in (
        click.option(
            "--table-option",
            "settings",
            multiple=True,
            type=SETTING,
            metavar="NAME=VALUE",
            help="Set an option of the table's store: of deltalake's storage, or of pyiceberg's catalog; repeatable.",
        ),
        click.option("--catalog", metavar="NAME", help="Take this catalog of pyiceberg.  [default: default]"),
        click.option(
            "--format",
            "table_format",
            type=click.Choice(FORMATS),
            default="parquet",
            show_default=True,
            help="Parquet directories, a table of Delta Lake, or one of Apache Iceberg.",
        ),
    ):
        command = option(command)
    return command


def print_table_report(report: TableReport, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(report.as_dict(), indent=2))
        return
    for topic, ends in report.end.items():
        places = [f"{number}: {report.begin[topic][number]:,} to {end:,}" for number, end in ends.items()]
        click.echo(f"{topic}, offsets by partition: {', '.join(places)}")
    click.echo(f"{report.rows:,} rows of committed records, {report.rows_in_table:,} rows in {report.table}")
    if report.sound:
        click.echo("Exactly once: each of them is in the table, and nothing else.")
        return
    click.echo(f"FAULTS: {report.missing:,} rows are missing, {report.extra:,} rows are too many")
    for example in report.examples:
        click.echo(f"  {example}")
