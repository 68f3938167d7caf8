"""Listener addresses in Kafka's spelling: `PLAINTEXT://host:port`."""

import re
from typing import NamedTuple

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
    """Read `NAME://host:port`; raises ValueError that says what is wrong."""
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
    if len(texts) != 1:
        return f"{','.join(texts)!r} must be exactly one listener, PLAINTEXT://host:port"
    try:
        parse_listener(texts[0])
    except ValueError as error:
        return str(error)
    return None
