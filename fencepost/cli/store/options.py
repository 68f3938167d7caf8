"""The stores that a command line names, and errors of the stores with what to do next."""

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from fencepost.cli.connect import fail
from fencepost.extras import needed_for

if TYPE_CHECKING:
    import psycopg

    from fencepost.broker.cluster.database.postgres import PostgresEngine
    from fencepost.broker.cluster.objects.object_store import Objects
    from fencepost.broker.config.broker_config import BrokerConfig

EXIT_USAGE = 2
SCHEMA = "fencepost"
OBJECTS_RETRY_S = 2.0
HINTS = {
    "Connection refused": "is the server running, and does it listen at this address (listen_addresses)?",
    "No such file or directory": "is the server running? With a host the address is postgresql://USER@HOST/DATABASE",
    "resolve host": "the host's name is unknown here: correct it in the address",
    "timeout": "nothing answers at this address: check host, port, and firewalls",
    'database "': "create it first: createdb NAME",
    'role "': "name a role that exists: postgresql://ROLE@HOST/DATABASE",
    "password": "the password comes from PGPASSWORD, from ~/.pgpass (PGPASSFILE), or from the address",
    "pg_hba.conf": "the server does not accept this user from this address: add a line to its pg_hba.conf",
    "read-only": "this server is a standby: name the primary, or all servers (host=a,b)",
    "too many clients": "raise max_connections",
    "permission denied": "use a role that may, or GRANT it; `fencepost store check` shows what is missing",
}
"""A part of libpq's or the server's message -> what to do."""


class StoreAddresses(NamedTuple):
    """The stores that a command works on."""

    database: str
    objects: str | None

    @contextmanager
    def connection(self) -> "Iterator[tuple[psycopg.Connection[Any], str]]":
        """A connection, and the database's name for messages. An error of the database ends the process."""
        with explained():
            with needed_for("--store", "cluster", fail):
                import psycopg

                from fencepost.broker.cluster.database import connection
            parameters = connection.parse(self.database)
            place = connection.name_of(parameters)
            try:
                with connection.connect(parameters) as opened:
                    yield opened, place
            except psycopg.Error as error:
                reason = " ".join((error.diag.message_primary or str(error)).split())
                hints = [hint for part, hint in HINTS.items() if part in reason]
                fail(f"{place}: {reason}", *hints[:1])

    @contextmanager
    def engine(self) -> "Iterator[PostgresEngine]":
        """The database, as brokers use it. Raises as its methods."""
        from fencepost.broker.cluster.database.postgres import PostgresEngine

        with closing(PostgresEngine(self.database, SCHEMA)) as opened:
            yield opened

    def opened_objects(self, cluster_id: str) -> "Objects":
        """The objects of a cluster. Raises ValueError and StoreUnavailable."""
        from fencepost.broker.cluster.objects.object_store import open_objects

        assert self.objects is not None
        return open_objects(self.objects, cluster_id, retry_s=OBJECTS_RETRY_S)


@contextmanager
def explained() -> Iterator[None]:
    """End the process with a sentence if a store is unavailable, has another schema or owner, or a wrong address."""
    from fencepost.broker.cluster.engine import SchemaMismatch, StoreUnavailable
    from fencepost.broker.cluster.objects.owner import NotOwner

    try:
        yield
    except (SchemaMismatch, StoreUnavailable, NotOwner) as error:
        fail(str(error))
    except ValueError as error:
        fail(str(error), exit_code=EXIT_USAGE)


def store_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--store, --objects, --config and --json; the command gets the first three as `addresses`."""

    @functools.wraps(command)
    def call(store: str | None, objects: str | None, config_file: Path | None, **more: Any) -> Any:
        return command(addresses=addresses_of(store, objects, config_file), **more)

    options = call
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Write JSON instead of text, errors too."),
        click.option(
            "--config",
            "config_file",
            type=click.Path(path_type=Path, exists=True, dir_okay=False),
            help="Take cluster.store and cluster.objects from the broker's file of settings.",
        ),
        click.option(
            "--objects",
            metavar="s3://BUCKET/PREFIX",
            help="The object store. [default: cluster.objects, FENCEPOST_CLUSTER_OBJECTS]",
        ),
        click.option(
            "--store",
            metavar="postgresql://...",
            help="The database. [default: cluster.store, FENCEPOST_CLUSTER_STORE]",
        ),
    ):
        options = option(options)
    return options


def addresses_of(store: str | None, objects: str | None, config_file: Path | None) -> StoreAddresses:
    """The stores by options, environment and file, as `fencepost serve` reads them. Raises UsageError."""
    config = config_of(store, objects, config_file)
    if config.cluster_store is None:
        raise click.UsageError("no database is named: give --store postgresql://USER@HOST/DATABASE")
    return StoreAddresses(config.cluster_store, config.cluster_objects)


def config_of(store: str | None, objects: str | None, config_file: Path | None) -> "BrokerConfig":
    """The settings by options, environment and file, as `fencepost serve` reads them. Raises UsageError."""
    from fencepost.broker.config.broker_config import ConfigError, load_config

    flags = {"cluster.store": store, "cluster.objects": objects}
    try:
        return load_config(file=config_file, environ=os.environ, flags=flags)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
