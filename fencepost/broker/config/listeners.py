"""Listeners in Kafka's spelling: `NAME://host:port`, their security protocols and their advertised addresses."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from fencepost.broker.config.sources import Given
from fencepost.broker.security.security_protocol import SecurityProtocol

PORT_MAX = 65_535
LISTENER_PREFIX = "listener.name."
_FORM = re.compile(
    r"(?P<name>[\w-]+)://(\[(?P<ipv6>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^\s:/@?#\[\]]*)):(?P<port>[0-9]{1,5})"
)
EVERY_INTERFACE = ("", "0.0.0.0", "::")
"""Hosts on which a listener is bound to all addresses: clients cannot connect to them."""
_PROTOCOLS = ", ".join(SecurityProtocol.__members__)


class Listener(NamedTuple):
    """One address; an empty host means every interface. The name is in upper case, as in Kafka."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


class ClientListener(NamedTuple):
    """A listener with the settings that belong to it."""

    name: str
    protocol: SecurityProtocol
    host: str
    port: int
    advertised: Listener | None
    """The address that clients of this listener use; None: the address that they connected to."""


class ListenerValues(Protocol):
    """The settings of listeners; `BrokerConfig` is one."""

    @property
    def client_listeners(self) -> tuple[ClientListener, ...]: ...

    @property
    def of_listeners(self) -> Mapping[str, Any]:
        """The values that are set for one listener alone, by their full names."""

    def of_listener(self, listener: str, name: str, mechanism: str | None = None) -> Any:
        """The value of a setting for a listener, or for a SASL mechanism on it: its own, or that of all listeners."""


def parse_listener(text: str) -> Listener:
    """Parse `NAME://host:port`; raises ValueError that explains the fault."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not of the form NAME://host:port, for example PLAINTEXT://localhost:9092")
    if int(match["port"]) > PORT_MAX:
        raise ValueError(f"{text!r}: the port must be a number from 0 to {PORT_MAX}")
    return Listener(match["name"].upper(), (match["ipv6"] or match["host"] or "").lower(), int(match["port"]))


def addresses_problem(texts: tuple[str, ...]) -> str | None:
    """What is wrong with a list of addresses, each by itself and as a list, or None."""
    if not texts:
        return "there is no listener for clients; name one, PLAINTEXT://host:port"
    try:
        listeners = [parse_listener(text) for text in texts]
    except ValueError as error:
        return str(error)
    names = [one.name for one in listeners]
    if len(set(names)) < len(names):
        return f"{','.join(texts)!r}: each listener must have a different name"
    return None


def security_protocol_map(text: str | None) -> dict[str, SecurityProtocol]:
    """Parse `NAME:PROTOCOL,...`; None maps each protocol's own name. Raises ValueError that explains the fault."""
    if text is None:
        return dict(SecurityProtocol.__members__)
    found: dict[str, SecurityProtocol] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, _, protocol = (piece.strip().upper() for piece in part.partition(":"))
        if not name or protocol not in SecurityProtocol.__members__:
            raise ValueError(f"{part!r} is not of the form NAME:PROTOCOL with one of {_PROTOCOLS}")
        if name in found:
            raise ValueError(f"{name} has two protocols")
        found[name] = SecurityProtocol[protocol]
    return found


def client_listeners(
    listeners: tuple[str, ...], advertised: tuple[str, ...] | None, protocol_map: str | None
) -> tuple[ClientListener, ...]:
    """The listeners with their protocols and advertised addresses. The settings were checked together before."""
    protocols = security_protocol_map(protocol_map)
    addresses = {one.name: one for one in map(parse_listener, advertised or ())}
    return tuple(
        ClientListener(one.name, protocols[one.name], one.host, one.port, addresses.get(one.name))
        for one in map(parse_listener, listeners)
    )


def listeners_problems(get: Callable[[str], Any], is_given: Callable[[str], bool]) -> Iterator[str]:
    """What is wrong with the settings of the listeners together. These are the rules of Kafka's KafkaConfig.

    One rule is left out: `security.inter.broker.protocol` needs a listener only if it is set, because no other broker
    connects to this one.
    """
    listeners = [parse_listener(text) for text in get("listeners")]
    advertised = [parse_listener(text) for text in get("advertised.listeners") or ()]
    protocols = security_protocol_map(get("listener.security.protocol.map"))
    names = [one.name for one in listeners]
    for one in listeners:
        if one.name not in protocols:
            yield f"listeners = '{one}': {one.name} is not in listener.security.protocol.map"
        if one.port and sum(one.port == other.port and _same_family(one, other) for other in listeners) > 1:
            yield f"listeners = '{one}': another listener has the same port"
    for one in advertised:
        if one.name not in names:
            yield f"advertised.listeners = '{one}': listeners has no {one.name}, only {', '.join(names)}"
        if one.host in EVERY_INTERFACE:
            yield f"advertised.listeners = '{one}' is no address that a client can connect to"
        if one.port == 0:
            yield f"advertised.listeners = '{one}' needs a port that a client can connect to"
    yield from _inter_broker_problems(get, is_given, names)


def _same_family(one: Listener, other: Listener) -> bool:
    """Whether two listeners may not have the same port: an IPv4 and an IPv6 address may (KIP-797)."""
    return (":" in one.host) == (":" in other.host)


def _inter_broker_problems(
    get: Callable[[str], Any], is_given: Callable[[str], bool], names: list[str]
) -> Iterator[str]:
    by_name, by_protocol = "inter.broker.listener.name", "security.inter.broker.protocol"
    if is_given(by_name) and is_given(by_protocol):
        yield f"only one of {by_name} and {by_protocol} can be set"
    for setting in (by_name, by_protocol):
        if is_given(setting) and get(setting).upper() not in names:
            yield f"{setting} = {get(setting)!r} is not the name of a listener; listeners has {', '.join(names)}"


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
        if one.name.lower().startswith(LISTENER_PREFIX) and _listener_of(one.name) in map(str.upper, names):
            continue
        parts = _parts(one.raw) if one.name in ("listeners", "advertised.listeners") else []
        controllers = [part for part in parts if part.partition("://")[0] in names]
        if controllers:
            one = one._replace(raw=[part for part in parts if part not in controllers])
        if one.name == "listeners":
            left_out.update(dict.fromkeys(controllers))
        kept.append(one)
    return kept, tuple(left_out)


def _listener_of(name: str) -> str:
    return name[len(LISTENER_PREFIX) :].partition(".")[0].upper()


def unknown_listeners(settings: Iterable[str], listeners: tuple[str, ...]) -> Iterator[str]:
    """Which of these settings with a listener's prefix are for listeners that do not exist, explained."""
    names = [parse_listener(text).name for text in listeners]
    for setting in settings:
        if _listener_of(setting) not in names:
            yield f"{setting}: listeners has no {_listener_of(setting)}, only {', '.join(names)}"


def _parts(raw: object) -> list[str]:
    members = raw.split(",") if isinstance(raw, str) else raw if isinstance(raw, list | tuple) else []
    return [str(member).strip() for member in members]
