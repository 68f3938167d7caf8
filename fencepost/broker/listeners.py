"""Listener addresses in Kafka's spelling: `PLAINTEXT://host:port`."""

from typing import NamedTuple
from urllib.parse import urlsplit


class Listener(NamedTuple):
    """One address; an empty host means every interface."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_listener(text: str) -> Listener:
    """Read `NAME://host:port`; raises ValueError that says what is wrong."""
    parts = urlsplit(text)
    if not parts.scheme or "//" not in text:
        raise ValueError(f"{text!r} is not of the form PLAINTEXT://host:port")
    name = text.partition(":")[0].upper()
    if name != "PLAINTEXT":
        raise ValueError(f"{text!r}: only PLAINTEXT listeners are served")
    try:
        port = parts.port
    except ValueError:
        raise ValueError(f"{text!r}: the port must be a number from 0 to 65535") from None
    if port is None:
        raise ValueError(f"{text!r} lacks a port")
    if parts.path or parts.query or parts.username:
        raise ValueError(f"{text!r} has more than a host and a port")
    return Listener(name, parts.hostname or "", port)


def listeners_problem(texts: tuple[str, ...]) -> str | None:
    """What is wrong with a list of listeners, or None."""
    if len(texts) != 1:
        return f"{','.join(texts)!r} must be exactly one listener, PLAINTEXT://host:port"
    try:
        parse_listener(texts[0])
    except ValueError as error:
        return str(error)
    return None
