"""Whether a broker can reach its stores, for /ready: it asks in the background, so the answer is prompt."""

import logging
from collections.abc import Callable
from typing import NamedTuple

import trio

from fencepost.broker.cluster.database.table_facts import TableSize
from fencepost.broker.cluster.engine import SchemaMismatch, StoreUnavailable

DATABASE_SECONDS = 2.0
OBJECTS_SECONDS = 5.0
"""A request for an object that does not exist: 18,000 a day."""

logger = logging.getLogger(__name__)


class Probes(NamedTuple):
    """How to ask the stores. Each call blocks, and raises StoreUnavailable."""

    database: Callable[[], list[TableSize]]
    """The sizes of the tables; also raises SchemaMismatch, if this role lacks a right, too."""
    objects: Callable[[str], Callable[[], None]]
    """The probe for the objects of the cluster with this id."""


class StoreHealth:
    """The stores as the last probes found them."""

    def __init__(self, probes: Probes | None) -> None:
        """None: the stores are doubles, which are always there."""
        unknown = None if probes is None else "not reached yet"
        self.database: str | None = unknown
        """Why the database is missing; None if it is there."""
        self.objects: str | None = unknown
        """Why the object store is missing; None if it is there."""
        self.tables: list[TableSize] = []
        self.cluster_id: str | None = None
        """Set as soon as the broker knows it: the objects are in a folder with this name."""
        self._probes = probes

    async def run(self) -> None:
        if self._probes is None:
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._ask_database, self._probes)
            nursery.start_soon(self._ask_objects, self._probes)

    async def _ask_database(self, probes: Probes) -> None:
        while True:
            try:
                self.tables = await trio.to_thread.run_sync(probes.database, abandon_on_cancel=True)
                self.database = None
            except (StoreUnavailable, SchemaMismatch) as error:
                self.database = str(error)
            await trio.sleep(DATABASE_SECONDS)

    async def _ask_objects(self, probes: Probes) -> None:
        probe: Callable[[], None] | None = None
        while True:
            if probe is None and self.cluster_id is not None:
                probe = await self._opened(probes, self.cluster_id)
            if probe is not None:
                try:
                    await trio.to_thread.run_sync(probe, abandon_on_cancel=True)
                    self.objects = None
                except StoreUnavailable as error:
                    self.objects = str(error)
            await trio.sleep(OBJECTS_SECONDS if probe is not None else DATABASE_SECONDS / 10)

    async def _opened(self, probes: Probes, cluster_id: str) -> Callable[[], None] | None:
        try:
            return await trio.to_thread.run_sync(probes.objects, cluster_id)
        except StoreUnavailable as error:
            self.objects = str(error)
            return None
