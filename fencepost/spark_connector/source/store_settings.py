"""Where the stores of a cluster are, for queries that ask no broker."""

from typing import NamedTuple


class StoreSettings(NamedTuple):
    """The addresses that brokers have as cluster.store and cluster.objects, and how long to wait for the stores."""

    database: str
    objects: str
    api_timeout_ms: int = 60_000
