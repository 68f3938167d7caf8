"""The settings that bound what clients may use: connections and bytes."""

from dataclasses import dataclass

from fencepost.broker.config.fields import Kind, setting

INT_MAX = 2**31 - 1


def _overrides_problem(entries: tuple[str, ...]) -> str | None:
    for entry in entries:
        host, _, count = entry.rpartition(":")
        if not host or not count.isdigit():
            return f"{entry!r} is not HOST:CONNECTIONS"
    return None


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class LimitSettings:
    """Bounds of connections, and of the bytes of requests and responses."""

    max_connections: int = setting(Kind.INT, 10_000, "Connections at once; more are closed.", low=1)
    max_connections_per_ip: int = setting(
        Kind.INT, INT_MAX, "Connections at once from one address; more are closed.", low=0
    )
    max_connections_per_ip_overrides: tuple[str, ...] = setting(
        Kind.LIST, (), "Other bounds for some addresses: HOST:CONNECTIONS.", check=_overrides_problem
    )
    max_connection_creation_rate: int = setting(
        Kind.INT, INT_MAX, "Connections accepted per second; others wait to be accepted.", low=1
    )
    queued_max_request_bytes: int = setting(
        Kind.LONG,
        256 << 20,
        "Memory for requests that are not handled yet, of all connections together. The broker reads no large request"
        " while it is used up. At least socket.request.max.bytes; -1 for no bound.",
        low=-1,
    )
    queued_max_response_bytes: int = setting(
        Kind.LONG,
        128 << 20,
        "Memory for responses that are not sent yet. Fetches get fewer bytes while it is used up; -1 for no bound.",
        low=-1,
        ours=True,
    )
    request_arrival_timeout_ms: int = setting(
        Kind.LONG, 60_000, "How long a request may take to arrive. The broker closes slower connections.", low=1,
        ours=True,
    )  # fmt: skip
