"""The pages of `--metrics`: /metrics for Prometheus, /ready and /health for what starts and watches brokers."""

import json
import os
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple

import trio

from fencepost.broker.metrics.server import MetricsServer, Page
from fencepost.broker.network.context import Endpoint
from fencepost.broker.ports import Broker

JSON = "application/json"
SHOWN = 10
"""Offline partitions that are named."""
FULL_BYTES = 1 << 20
"""With less space a disk counts as full."""


class Readiness(NamedTuple):
    """Whether a broker can do all its work, and what it reports about that."""

    reasons: Mapping[str, str]
    """Why it cannot: a word for programs, and a sentence. Empty: it is ready."""
    facts: Mapping[str, Any]

    def page(self) -> Page:
        """Status 200 if the broker is ready, otherwise 503."""
        ready = not self.reasons
        body = json.dumps({"ready": ready, **self.facts, "reasons": self.reasons}) + "\n"
        return HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE, JSON, body.encode()


def ready_alone(node: Broker) -> Readiness:
    """A broker with files serves pages when it has recovered. It is ready while it can serve and write all logs."""
    reasons = {}
    if node.stopping:
        reasons["stopping"] = "the broker is stopping"
    offline = node.partitions.offline()
    if offline:
        names = ", ".join(map(str, offline[:SHOWN])) + (", ..." if len(offline) > SHOWN else "")
        reasons["log_offline"] = f"{len(offline)} partitions are offline: {names}. The broker's log has the cause"
    free = free_bytes(node.logs.place)
    if free is not None and free < FULL_BYTES:
        reasons["disk_full"] = f"{node.logs.place} has {free} bytes left: writes are refused until there is space"
    return Readiness(reasons, {"broker": node.config.node_id, "role": "active"})


def free_bytes(directory: str) -> int | None:
    """What a user may still write where this directory is; None without a directory (logs in memory)."""
    try:
        found = os.statvfs(directory)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


async def health() -> Page:
    """The answer shows that the event loop runs. A process that does not answer for long should be restarted."""
    return HTTPStatus.OK, JSON, b'{"healthy": true}\n'


def pages_of(
    metrics: Callable[[], Awaitable[Page]], ready: Callable[[], Readiness]
) -> dict[bytes, Callable[[], Awaitable[Page]]]:
    """The pages by their paths."""

    async def readiness() -> Page:
        return ready().page()

    return {b"/metrics": metrics, b"/ready": readiness, b"/health": health}


async def serve_pages(
    address: str, services: trio.Nursery, metrics: Callable[[], Awaitable[Page]], ready: Callable[[], Readiness]
) -> Endpoint:
    """Serve the pages at HOST:PORT until `services` end; returns the bound address. Raises OSError."""
    host, _, port = address.rpartition(":")
    pages = pages_of(metrics, ready)
    server = MetricsServer(pages)
    endpoint = await server.listen(host.strip("[]"), int(port))
    services.start_soon(server.run)
    return endpoint
