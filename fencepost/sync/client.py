"""The blocking client, and the blocking admin client."""

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self, Unpack

from fencepost.client import Admin as AsyncAdmin
from fencepost.client import Client as AsyncClient
from fencepost.client.keywords import ClientOptions, Duration
from fencepost.sync.loop import Loop
from fencepost.sync.mirror import Mirror, Opened


class Admin(Opened, of=AsyncAdmin):
    """As fencepost.Admin, blocking. Several threads may use it."""


class Client(Mirror, of=AsyncClient):
    """As fencepost.Client, blocking: `with Client("127.0.0.1:9092") as kafka`.

    `timeout` (seconds, or a timedelta) bounds every single call, but not the wait for records: an idle topic is no
    failure. A call that takes longer raises TimedOutError, a TimeoutError. `with fail_after(seconds)` bounds all calls
    inside together. Several threads may share a Client, its producers and its admin; only one thread at a time may use
    a consumer. In a forked process every call raises RuntimeError: open a Client there.
    """

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        *,
        timeout: Duration | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        client = AsyncClient(bootstrap_servers, **options)
        super().__init__(Loop(client, timeout), client)

    @classmethod
    def from_config(cls, config: Mapping[str, Any], *, timeout: Duration | None = None) -> Self:
        """A client out of Kafka's own dotted names ("bootstrap.servers", "linger.ms", "group.id", ...).

        Options of producers and consumers become their defaults. Options of other clients that this one does not have
        are ignored, with one warning. Raises ConfigError for other names, and for values that are not accepted.
        """
        made = cls.__new__(cls)
        client = AsyncClient.from_config(config)
        Mirror.__init__(made, Loop(client, timeout), client)
        return made

    def __enter__(self) -> Self:
        """Start the client's thread. Raises RuntimeError if it was opened before."""
        self._loop.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the thread; raises the exception of a background task of the client."""
        self._loop.close(raising=error is None)
