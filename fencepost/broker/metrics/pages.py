"""The pages of `--metrics`: /metrics for Prometheus, /ready and /health for what starts and watches brokers."""

import json
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple, Protocol

import trio

from fencepost.broker.metrics.server import MetricsServer, Page
from fencepost.broker.network.context import Endpoint
from fencepost.broker.ports import HasConfig

JSON = "application/json"


class Readiness(NamedTuple):
    """Whether a broker can serve, and what it reports about that."""

    ready: bool
    facts: Mapping[str, Any]

    def page(self) -> Page:
        """Status 200 if the broker is ready, otherwise 503."""
        body = json.dumps({"ready": self.ready, **self.facts}) + "\n"
        return HTTPStatus.OK if self.ready else HTTPStatus.SERVICE_UNAVAILABLE, JSON, body.encode()


class Alone(HasConfig, Protocol):
    """A broker with files."""

    stopping: bool


def ready_alone(node: Alone) -> Readiness:
    """A broker with files is ready as soon as it serves pages, until it stops."""
    return Readiness(not node.stopping, {"broker": node.config.node_id, "role": "active"})


def health() -> Page:
    """The answer shows that the event loop runs. A process that does not answer for long should be restarted."""
    return HTTPStatus.OK, JSON, b'{"healthy": true}\n'


async def serve_pages(
    address: str, services: trio.Nursery, metrics: Callable[[], Page], ready: Callable[[], Readiness]
) -> Endpoint:
    """Serve the pages at HOST:PORT until `services` end; returns the bound address. Raises OSError."""
    host, _, port = address.rpartition(":")
    pages = {b"/metrics": metrics, b"/ready": lambda: ready().page(), b"/health": health}
    server = MetricsServer(pages)
    endpoint = await server.listen(host.strip("[]"), int(port))
    services.start_soon(server.run)
    return endpoint
