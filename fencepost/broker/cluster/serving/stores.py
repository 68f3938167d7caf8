"""The stores of a cluster: where a broker's connections to the database and its objects come from."""

import logging
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from fencepost.broker.cluster.commit.rounds import RowBytes
from fencepost.broker.cluster.database.table_facts import TableSize
from fencepost.broker.cluster.engine import Engine
from fencepost.broker.cluster.objects.claims import ClaimPool
from fencepost.broker.cluster.objects.object_store import open_objects
from fencepost.broker.cluster.objects.owner import BucketOwner
from fencepost.broker.cluster.objects.row_objects import RowObjects
from fencepost.broker.cluster.serving.health import Probes
from fencepost.extras import needed_for

if TYPE_CHECKING:
    from fencepost.broker.config.broker_config import BrokerConfig

PROBE_TIMEOUT_S = 5.0

logger = logging.getLogger(__name__)


class Stores(NamedTuple):
    """The database and the object store of one cluster."""

    place: str
    """The database, for messages; without a password."""
    connect: Callable[[], Engine]
    """A new connection."""
    open_objects: Callable[[str], RowBytes]
    """The objects of the cluster with this id. Raises StoreUnavailable, ConfigError for a wrong address, and NotOwner.
    """
    prepare: Callable[[], None] = lambda: None
    """Create the schema in a database that has none, and check the rights of the role.

    Raises StoreUnavailable and SchemaMismatch.
    """
    probes: Probes | None = None
    """How to ask whether the stores are there; None for doubles."""
    interrupt: Callable[[], None] = lambda: None
    """The broker stops: let no call wait for the database any more."""


def stores_of(config: "BrokerConfig") -> Stores:
    """The stores that the settings name. Raises ConfigError."""
    from fencepost.broker.config.broker_config import ConfigError

    with needed_for("cluster.store", "cluster", ConfigError):
        from fencepost.broker.cluster.database import postgres  # here: it imports psycopg

    made: weakref.WeakSet[postgres.PostgresEngine] = weakref.WeakSet()

    def connected() -> postgres.PostgresEngine:
        engine = postgres.PostgresEngine(str(database))
        made.add(engine)
        return engine

    def interrupt() -> None:
        for engine in list(made):
            engine.interrupt()

    database, objects = config.cluster_store, config.cluster_objects
    if database is None or objects is None:
        raise ConfigError("cluster.store and cluster.objects (--store and --objects) belong together: set both")
    try:
        place = connected().place
    except ValueError as error:
        raise ConfigError(f"cluster.store: {error}") from error

    def opened(cluster_id: str) -> RowBytes:
        try:
            found = open_objects(objects, cluster_id)
        except ValueError as error:
            raise ConfigError(f"cluster.objects: {error}") from error
        found.check()
        engine = connected()
        opened = RowObjects(
            found, ClaimPool(engine, config.cluster_claim_max_age_ms), BucketOwner(found, engine.identity)
        )
        opened.check_owner()
        return opened

    probing = connected()

    def prepare() -> None:
        if probing.create_schema():
            logger.info("created the schema of a new cluster in %s", place)
        probing.check_rights()

    def table_sizes() -> list[TableSize]:
        probing.check_rights()
        return probing.table_sizes()

    def object_probe(cluster_id: str) -> Callable[[], None]:
        return open_objects(objects, cluster_id, request_timeout_s=PROBE_TIMEOUT_S, retry_s=0).probe

    probes = Probes(table_sizes, object_probe)
    return Stores(place, connected, opened, prepare, probes, interrupt)
