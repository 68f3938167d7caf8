"""The stores of a cluster: where a broker's connections to the database and its objects come from."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from fencepost.broker.cluster.claims import ClaimPool
from fencepost.broker.cluster.engine import Engine
from fencepost.broker.cluster.objects import open_objects
from fencepost.broker.cluster.rounds import RowBytes
from fencepost.broker.cluster.row_objects import RowObjects

if TYPE_CHECKING:
    from fencepost.broker.config.broker_config import BrokerConfig


class Stores(NamedTuple):
    """The database and the object store of one cluster."""

    place: str
    """The database, for messages; without a password."""
    connect: Callable[[], Engine]
    """A new connection."""
    open_objects: Callable[[str], RowBytes]
    """The objects of the cluster with this id. Raises StoreUnavailable, and ValueError for a wrong address."""


def stores_of(config: "BrokerConfig") -> Stores:
    """The stores that the settings name. Raises ConfigError."""
    from fencepost.broker.cluster import connection  # here: it imports psycopg
    from fencepost.broker.cluster.postgres import PostgresEngine
    from fencepost.broker.config.broker_config import ConfigError

    database, objects = config.cluster_store, config.cluster_objects
    if database is None or objects is None:
        raise ConfigError("cluster.store and cluster.objects (--store and --objects) belong together: set both")
    try:
        place = connection.name_of(connection.parse(database))
    except ValueError as error:
        raise ConfigError(f"cluster.store: {error}") from error
    return Stores(
        place,
        lambda: PostgresEngine(database),
        lambda cluster_id: RowObjects(open_objects(objects, cluster_id), ClaimPool(PostgresEngine(database))),
    )
