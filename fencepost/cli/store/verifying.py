"""`fencepost verify --store`: check the stores of a cluster against each other."""

import time
from contextlib import closing
from pathlib import Path

import click

from fencepost.cli.connect import fail
from fencepost.cli.findings import print_finding, progress, sum_up
from fencepost.cli.plain_text import counted
from fencepost.cli.store.options import EXIT_USAGE, SCHEMA, addresses_of, explained


def verify_cluster(
    store: str | None,
    objects: str | None,
    config_file: Path | None,
    topic: str | None,
    partition: int | None,
    shallow: bool,
    as_json: bool,
) -> None:
    """Check the stores, print the result, and exit."""
    addresses = addresses_of(store, objects, config_file)
    if addresses.objects is None:
        raise click.UsageError("no object store is named: give --objects s3://BUCKET/PREFIX")
    with addresses.connection() as (connection, place):
        from fencepost.broker.cluster.database import schema
        from fencepost.broker.cluster.database.postgres import PostgresEngine

        schema.check_version(connection, SCHEMA)
        row = connection.execute(f"SELECT id FROM {SCHEMA}.cluster".encode()).fetchone()
        cluster_id = None if row is None else row[0]
    if cluster_id is None:
        fail(f"{place}: no broker has used this database yet, so there is nothing to check", exit_code=EXIT_USAGE)
    from fencepost.broker.cluster.verify.verification import StoreReport, verify_stores

    report = StoreReport() if as_json else StoreReport(found=print_finding)
    began = time.monotonic()
    with explained(), closing(PostgresEngine(addresses.database)) as engine, progress(report, as_json) as begin:
        try:
            verify_stores(
                engine,
                addresses.opened_objects(cluster_id),
                report,
                topic=topic,
                partition=partition,
                shallow=shallow,
                begin=begin,
            )
        except LookupError as error:
            fail(error.args[0], exit_code=EXIT_USAGE)
    counts = counted(report.rows, "row"), counted(report.objects, "object")
    sum_up(report, time.monotonic() - began, as_json, *counts)
