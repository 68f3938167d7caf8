"""The stores of a cluster that a command of `fencepost spark` reads, and their errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fencepost.cli.connect import fail
from fencepost.cli.store.options import HINTS, addresses_of
from fencepost.extras import install

if TYPE_CHECKING:
    from fencepost.spark_connector.source.store_settings import StoreSettings


def store_settings(
    store: str | None, objects: str | None, kafka: Mapping[str, Any], config_file: Path | None = None
) -> StoreSettings:
    """The stores that --store and --objects name; the file or the environment for what is missing. Raises UsageError.

    `kafka` may have `default.api.timeout.ms`.
    """
    from fencepost.spark_connector.source.store_settings import StoreSettings

    addresses = addresses_of(store, objects, config_file)
    if addresses.objects is None:
        raise click.UsageError("no object store is named: give --objects s3://BUCKET/PREFIX")
    if find_spec("psycopg") is None:
        fail(f"--store needs psycopg: {install('cluster')}")
    timeout_ms = kafka.get("default.api.timeout.ms")
    settings = StoreSettings(addresses.database, addresses.objects)
    return settings if timeout_ms is None else settings._replace(api_timeout_ms=int(timeout_ms))


@contextmanager
def store_errors() -> Iterator[None]:
    """End the command with a sentence if a store is unavailable, its metadata are damaged, or it has another schema."""
    from fencepost.broker.cluster.engine import SchemaMismatch, StoreUnavailable
    from fencepost.broker.log.storage.store import CorruptLogFile

    try:
        yield
    except (SchemaMismatch, StoreUnavailable) as error:
        hints = [hint for part, hint in HINTS.items() if part in str(error)]
        fail(str(error), *hints[:1])
    except CorruptLogFile as error:
        fail(f"the metadata of the cluster are damaged: {error}", "`fencepost verify --store` lists all damage")
