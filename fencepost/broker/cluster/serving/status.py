"""The pages of a broker of a cluster, over all its runs: its metrics, and whether it is ready."""

from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any

import trio

from fencepost.broker.cluster.serving.health import StoreHealth

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from fencepost.broker.cluster.serving.membership import Membership
    from fencepost.broker.metrics.pages import Readiness
    from fencepost.broker.metrics.server import Page
    from fencepost.broker.network.context import Endpoint
    from fencepost.broker.node import Node


class Status:
    """What a broker reports at `--metrics`."""

    def __init__(self, broker_id: int, health: StoreHealth) -> None:
        self.node: Node | None = None
        """The current run, or the last one."""
        self.member: Membership | None = None
        self.stopping = False
        self._broker_id = broker_id
        self._health = health
        self._rendered: tuple[Node | None, Callable[[], Awaitable[Page]]] | None = None

    async def serve(self, address: str, services: trio.Nursery) -> "Endpoint":
        """Serve the pages until `services` end; returns the bound address. Raises OSError."""
        from fencepost.broker.metrics.pages import serve_pages  # here: it imports prometheus_client

        return await serve_pages(address, services, self._metrics, self.readiness)

    @property
    def role(self) -> str:
        """`active`, `standby`, or `joining`: it does not listen yet, or changes its role."""
        node = self.node
        if node is None or node.stopping or node.server is None or self.member is None:
            return "joining"
        return "active" if self.member.active else "standby"

    def readiness(self) -> "Readiness":
        """Ready are an active broker and a standby that listen, while both stores are there."""
        from fencepost.broker.metrics.pages import Readiness

        member, database, objects = self.member, self._health.database, self._health.objects
        waits = None if member is None else member.writer.unavailable
        conflict = None if member is None else member.writer.conflict
        found = {
            "stopping": "the broker is stopping" if self.stopping else None,
            "joining": "the broker does not listen yet, or changes its role" if self.role == "joining" else None,
            "database": database,
            "objects": objects,
            "commits_wait_for": waits,
            "commits_conflict": conflict,
        }
        facts: dict[str, Any] = {
            "broker": self._broker_id,
            "role": self.role,
            "active_broker": None if member is None else member.controller_id,
            "stopping": self.stopping,
            "missing": [name for name, why in (("database", database), ("objects", objects)) if why is not None],
            "database": database or "ok",
            "objects": objects or "ok",
            "commits_wait_for": waits,
            "commits_conflict": conflict,
        }
        return Readiness({name: why for name, why in found.items() if why}, facts)

    async def _metrics(self) -> "Page":
        """The metrics of the current run; before the first one, only those of the stores and the process."""
        if self._rendered is None or self._rendered[0] is not self.node:
            from fencepost.broker.metrics.exposition import renderer

            self._rendered = self.node, renderer(self.node, self._collect)
        return await self._rendered[1]()

    def _collect(self) -> "Iterator[Metric]":
        from fencepost.broker.metrics.cluster import health_metrics

        return health_metrics(self._health)
