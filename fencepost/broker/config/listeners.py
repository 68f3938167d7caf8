"""Listener addresses in Kafka's spelling: `PLAINTEXT://host:port`."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from fencepost.broker.config.sources import Given

PORT_MAX = 65_535
_FORM = re.compile(r"(?P<name>\w+)://(\[(?P<ipv6>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^\s:/@?#\[\]]*)):(?P<port>[0-9]{1,5})")


class Listener(NamedTuple):
    """One address; an empty host means every interface."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_listener(text: str) -> Listener:
    """Parse `NAME://host:port`; raises ValueError that explains the fault."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not of the form PLAINTEXT://host:port")
    if match["name"].upper() != "PLAINTEXT":
        raise ValueError(f"{text!r}: only PLAINTEXT listeners are served")
    if int(match["port"]) > PORT_MAX:
        raise ValueError(f"{text!r}: the port must be a number from 0 to {PORT_MAX}")
    return Listener("PLAINTEXT", (match["ipv6"] or match["host"] or "").lower(), int(match["port"]))


def listeners_problem(texts: tuple[str, ...]) -> str | None:
    """What is wrong with a list of listeners, or None."""
    if not texts:
        return "there is no listener for clients; name one, PLAINTEXT://host:port"
    if len(texts) != 1:
        return f"{','.join(texts)!r} must be exactly one listener, PLAINTEXT://host:port"
    try:
        parse_listener(texts[0])
    except ValueError as error:
        return str(error)
    return None


def without_controllers(entries: Iterable[Given]) -> tuple[list[Given], tuple[str, ...]]:
    """The settings without controller listeners, and the listeners that were left out.

    A controller listener has a name that `controller.listener.names` lists. Apache Kafka's own server.properties has
    one; here the node is its own controller, and no other node connects to it.
    """
    entries = list(entries)
    names = {name for one in entries if one.name == "controller.listener.names" for name in _parts(one.raw)}
    kept: list[Given] = []
    left_out: dict[str, None] = {}
    for one in entries:
        parts = _parts(one.raw) if one.name in ("listeners", "advertised.listeners") else []
        controllers = [part for part in parts if part.partition("://")[0] in names]
        if controllers:
            one = one._replace(raw=[part for part in parts if part not in controllers])
        if one.name == "listeners":
            left_out.update(dict.fromkeys(controllers))
        kept.append(one)
    return kept, tuple(left_out)


def _parts(raw: object) -> list[str]:
    members = raw.split(",") if isinstance(raw, str) else raw if isinstance(raw, list | tuple) else []
    return [str(member).strip() for member in members]
