"""How many connections there may be: in all, from one address, and created in a second."""

from collections import Counter
from typing import Protocol

import trio

from fencepost.broker.log.storage.descriptor_pool import descriptors_for_connections


class _Settings(Protocol):
    @property
    def max_connections(self) -> int: ...
    @property
    def max_connections_per_ip(self) -> int: ...
    @property
    def max_connections_per_ip_overrides(self) -> tuple[str, ...]: ...
    @property
    def max_connection_creation_rate(self) -> int: ...


class ConnectionLimits:
    """Counts the open connections. A connection counts from its acceptance to its end.

    Those of the other cores of a machine, whose host is empty, are not counted: a broker that has all the connections
    of clients that it may have must still write the others' markers (Kafka's ConnectionQuotas.protectedListener).
    """

    def __init__(self, settings: _Settings) -> None:
        self._settings = settings
        overrides = (entry.rpartition(":") for entry in settings.max_connections_per_ip_overrides)
        self._overrides = {host.strip("[]"): int(count) for host, _, count in overrides}
        self._descriptors = descriptors_for_connections()
        self._count = 0
        self._by_host: Counter[str] = Counter()
        self._tokens = float(settings.max_connection_creation_rate)
        self._refilled = trio.current_time()

    def begin(self, host: str) -> str | None:
        """Count a connection from `host`. Returns what forbids it, such as a setting with its value, or None."""
        settings = self._settings
        if not host:
            return None
        if self._count >= settings.max_connections:
            return f"max.connections={settings.max_connections}"
        if self._count >= self._descriptors:
            return f"the process may have {self._descriptors} connections, because of its limit of open files"
        most = self._overrides.get(host, settings.max_connections_per_ip)
        if self._by_host[host] >= most:
            name = "max.connections.per.ip.overrides" if host in self._overrides else "max.connections.per.ip"
            return f"{name}={most}"
        self._count += 1
        self._by_host[host] += 1
        return None

    def end(self, host: str) -> None:
        if not host:
            return
        self._count -= 1
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]

    async def next_accept(self, host: str) -> None:
        """Wait until one more connection may be created after that of `host`. Always lets other tasks run."""
        if not host:
            await trio.lowlevel.checkpoint()
            return
        rate = self._settings.max_connection_creation_rate
        now = trio.current_time()
        self._tokens = min(float(rate), self._tokens + (now - self._refilled) * rate)
        self._refilled = now
        self._tokens -= 1
        await trio.sleep(max(0.0, -self._tokens / rate))
