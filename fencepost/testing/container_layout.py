"""What the environment of a Kafka container means for a broker under test: its settings and its listeners."""

import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from fencepost.broker.config.broker_config import ALIASES, is_without_effect, setting_of

KAFKA_PORT = 9092
REGISTRY_PORT = 8081
_OTHER_PORTS = {REGISTRY_PORT, 8082, 9644, 2181}
"""The ports of images that are not for Kafka clients: Schema Registry, REST proxy, Redpanda's admin, ZooKeeper."""
_SECURITY = ("ssl.", "sasl.", "authorizer.", "super.users", "principal.", "listener.name.", "allow.everyone.")
_BY_LAYOUT = ("controller.", "zookeeper.", "process.roles", "log.dir", "inter.broker.", "control.plane.")
"""Settings about a cluster of machines and files, which a broker in memory does not have."""
_LISTENER = re.compile(r"\s*(?P<name>\w+)://.*:(?P<port>\d+)\s*")


class Layout(NamedTuple):
    """The settings of the broker, and its listeners: the container's port of each, by name."""

    settings: dict[str, str]
    listeners: dict[str, int]
    protocols: dict[str, str]
    """The security protocol of each listener."""
    ignored: list[str]
    """The names of settings that this broker does not know; Kafka ignores unknown settings, too."""


def read_layout(env: Mapping[str, Any], exposed: Collection[int]) -> Layout:
    """Read the variables of Confluent's, Apache's and Bitnami's images; `exposed` are the container's ports.

    A setting about security is never ignored: the broker refuses one that it does not know.
    """
    given = {_name(key): _value(value) for key, value in env.items() if key.startswith("KAFKA_")}
    settings: dict[str, str] = {}
    ignored = []
    for name, value in given.items():
        if "listeners" in name or name.startswith(("listener.security.", "security.inter.", *_BY_LAYOUT)) or not value:
            continue
        known = setting_of(ALIASES.get(name, name)) is not None or is_without_effect(name)
        if known or name.startswith(_SECURITY):
            settings[name] = value
        else:
            ignored.append(name)
    listeners = _listeners(given, exposed)
    pairs = (pair.partition(":") for pair in given.get("listener.security.protocol.map", "").split(","))
    named = {name.strip().upper(): protocol.strip() for name, _, protocol in pairs}
    return Layout(settings, listeners, {name: named.get(name, name) for name in listeners}, ignored)


def _name(key: str) -> str:
    """KAFKA_LOG_RETENTION_MS is log.retention.ms. Two underscores are one, three a dash, as in Confluent's images."""
    name = key.removeprefix("KAFKA_").removeprefix("CFG_").lower()
    return re.sub("_+", lambda match: {1: ".", 2: "_", 3: "-"}.get(len(match[0]), match[0]), name)


def _value(value: Any) -> str:
    """A value as the image writes it into a properties file, where two characters stand for the end of a line."""
    return str(value).replace("\\n", "\n").strip()


def _listeners(given: Mapping[str, str], exposed: Collection[int]) -> dict[str, int]:
    """The listeners for clients that a port of the container leads to; the first one if none does."""
    controllers = {name.strip().upper() for name in given.get("controller.listener.names", "").split(",")}
    texts = (given.get("listeners") or given.get("advertised.listeners") or "").split(",")
    found = {match["name"].upper(): int(match["port"]) for match in map(_LISTENER.fullmatch, texts) if match}
    clients = {name: port for name, port in found.items() if name not in controllers}
    if not clients:
        ports = [port for port in exposed if port not in _OTHER_PORTS] or [KAFKA_PORT]
        clients = {"PLAINTEXT": ports[0]}
    reachable = {name: port for name, port in clients.items() if port in exposed}
    return reachable or dict(list(clients.items())[:1])
