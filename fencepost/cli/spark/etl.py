"""Runs the query of `fencepost spark etl`, shows its progress, and stops it on Ctrl-C."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from fencepost.cli.spark.options import bar, kafka_settings, shape_of

_LOOK_SECONDS = 1.0


def run_etl(
    sources: tuple[str, ...],
    *,
    target: str | None,
    checkpoint: Path,
    to_bootstrap: str | None,
    starting: str,
    headers: bool,
    every: str | None,
    max_records: int | None,
    sink: tuple[tuple[str, str], ...],
    where: str | None,
    select: str | None,
    sql: str | None,
    function: str | None,
    bootstrap: str,
    start_spark: Callable[[str], Any],
) -> None:
    """Start the query and wait until it ends. Raises the error that ended it."""
    from fencepost.spark_pipelines import etl
    from fencepost.spark_pipelines.progress import running_tasks

    shape = shape_of(where, select, sql, function)
    session = start_spark("etl")
    query = etl(
        session,
        sources,
        target,
        kafka=kafka_settings(bootstrap),
        to_kafka=None if to_bootstrap is None else kafka_settings(to_bootstrap),
        checkpoint=checkpoint,
        shape=shape,
        headers=headers,
        starting=starting,
        every=every,
        max_records=max_records,
        sink=dict(sink),
    )
    progress = _Progress()
    try:
        with bar("copying") as advance:
            while not query.awaitTermination(_LOOK_SECONDS):
                progress.show(query)
                advance(*running_tasks(session))
        progress.show(query)
    finally:
        if query.isActive:
            query.stop()
    if every is None:
        where = target or "the target topics"
        click.echo(f"{progress.rows:,} records read; all records that were committed at the start are in {where}")


class _Progress:
    """Prints a line for each micro-batch with records."""

    def __init__(self) -> None:
        self.rows = 0
        self._batch = -1

    def show(self, query: Any) -> None:
        """Print the micro-batches that are new in the query's progress."""
        for progress in query.recentProgress:
            if progress.batchId <= self._batch:
                continue
            self._batch = progress.batchId
            if progress.numInputRows:
                self.rows += progress.numInputRows
                rate = f"{progress.processedRowsPerSecond:,.0f}/s"
                click.echo(f"batch {progress.batchId}: {progress.numInputRows:,} records, {rate}", err=True)
