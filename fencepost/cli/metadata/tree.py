"""The committed metadata as a tree of folders and values, for `fencepost metadata-shell`."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from fencepost.cli.plain_text import shown_id
from fencepost.client.admin.security_types import ScramMechanism, acl_of
from fencepost.client.admin.types import HIDDEN, is_secret
from fencepost.coordinator.metadata.image import ConfigResource
from fencepost.protocol.admin_enums import ConfigResourceType, named

if TYPE_CHECKING:
    from fencepost.coordinator.metadata.image import MetadataImage, PartitionImage, TopicImage

ALL_BROKERS = "all"
SECTIONS = {
    ConfigResourceType.TOPIC: "topics",
    ConfigResourceType.BROKER: "brokers",
    ConfigResourceType.GROUP: "groups",
    ConfigResourceType.CLIENT_METRICS: "client-metrics",
}
"""The folder with the settings of each kind of resource."""
Leaf = str | int | float | bool | list[Any] | dict[str, Any] | None


class Folder(NamedTuple):
    """A folder of names; it creates a child on first use, so that large topics cost nothing."""

    names: Callable[[], Iterable[str]]
    child: Callable[[str], "Folder | Leaf"]


Node = Folder | Leaf


class NoSuchPath(Exception):
    """The name does not exist at that offset."""


def escaped(name: str) -> str:
    """A name as part of a path, with slashes and unprintable characters as %XX."""
    from urllib.parse import quote

    return (
        quote(name, safe=" !\"#$&'()*+,:;<=>?@[\\]^`{|}~") if not name.isprintable() or {"/", "%"} & set(name) else name
    )


def root(image: "MetadataImage") -> Folder:
    return _folder(
        {
            "offset": lambda: image.offset,
            "topics": lambda: _of(image.topics_by_name, _topic),
            "topic-ids": lambda: _of(
                {shown_id(key): topic for key, topic in image.topics_by_id.items()}, lambda topic: topic.name
            ),
            "brokers": lambda: _brokers(image),
            "groups": lambda: _configured(image, ConfigResourceType.GROUP),
            "client-metrics": lambda: _configured(image, ConfigResourceType.CLIENT_METRICS),
            "features": lambda: _of(image.features, lambda level: level),
            "producer-ids": lambda: _folder({"next": lambda: image.next_producer_id}),
            "acls": lambda: _of({shown_id(key): rule for key, rule in image.acls.items()}, _acl),
            "quotas": lambda: _of({entity_name(key): limits for key, limits in image.quotas.items()}, _table),
            "scram": lambda: _scram(image),
        }
    )


def _folder(children: Mapping[str, Callable[[], Node]]) -> Folder:
    return Folder(lambda: children, lambda name: children[name]())


def _of(things: Mapping[Any, Any], show: Callable[[Any], Node]) -> Folder:
    """A folder of things by name, with names escaped for paths."""
    by_name: dict[str, Any] = {}

    def listed() -> dict[str, Any]:
        if not by_name:
            by_name.update({escaped(str(name)): thing for name, thing in things.items()})
        return by_name

    return Folder(lambda: sorted(listed(), key=_order), lambda name: show(listed()[name]))


def _order(name: str) -> tuple[bool, int, str]:
    """Numbers by size, before words."""
    return (False, int(name), "") if name.isascii() and name.isdigit() else (True, 0, name)


def _table(values: Mapping[str, Any]) -> Folder:
    return _of(values, lambda value: value)


def _settings(configs: Mapping[str, str]) -> Folder:
    return _table({name: open_value(name, value) for name, value in configs.items()})


def open_value(name: str, value: str | None) -> str | None:
    """A setting's value, without passwords: Kafka stores them as plain text in its metadata."""
    return HIDDEN if value is not None and is_secret(name, None) else value


def _topic(topic: "TopicImage") -> Folder:
    count = topic.partitions
    return _folder(
        {
            "id": lambda: shown_id(topic.topic_id),
            "configs": lambda: _settings(topic.configs),
            "partitions": lambda: Folder(
                lambda: map(str, range(count)), lambda name: _partition(topic.assignment[int(name)])
            ),
        }
    )


def _partition(one: "PartitionImage") -> Leaf:
    fields: dict[str, Any] = {
        "leader": one.leader,
        "leader_epoch": one.leader_epoch,
        "partition_epoch": one.partition_epoch,
        "replicas": list(one.replicas),
        "isr": list(one.isr),
    }
    for name in ("adding_replicas", "removing_replicas", "eligible_leader_replicas", "last_known_elr"):
        if getattr(one, name):
            fields[name] = list(getattr(one, name))
    if any(any(directory) for directory in one.directories):
        fields["directories"] = [shown_id(directory) for directory in one.directories]
    return fields


def _configured(image: "MetadataImage", kind: ConfigResourceType) -> Folder:
    """Resources of which only the settings are known."""
    found = {resource.name: entries for resource, entries in image.configs.items() if resource.type is kind}
    return _of(found, lambda entries: _folder({"configs": lambda: _settings(entries)}))


def _brokers(image: "MetadataImage") -> Folder:
    names = {str(number) for number in image.brokers}
    names |= {resource.name for resource in image.configs if resource.type is ConfigResourceType.BROKER}
    return _of({name or ALL_BROKERS: name for name in names}, lambda name: _broker(image, name))


def _broker(image: "MetadataImage", name: str) -> Folder:
    fields: dict[str, Callable[[], Node]] = {}
    registered = image.brokers.get(int(name)) if name.isdigit() else None
    if registered is not None:
        fields["registration"] = lambda: plain(registered)
    configs = image.configs.get(ConfigResource(ConfigResourceType.BROKER, name))
    if configs:
        fields["configs"] = lambda: _settings(configs)
    return _folder(fields)


def _acl(record: Any) -> Leaf:
    rule = acl_of(record, record)
    return {
        "principal": rule.principal,
        "operation": rule.operation.name,
        "resource_type": rule.resource_type.name,
        "resource_name": rule.name,
        "pattern_type": rule.pattern_type.name,
        "permission": rule.permission.name,
        "host": rule.host,
    }


def entity_name(parts: Iterable[tuple[str, str | None]]) -> str:
    return ",".join(f"{kind}={'<default>' if name is None else name}" for kind, name in parts)


def mechanism_name(number: int) -> str:
    return named(ScramMechanism, number).name.replace("_", "-")


def _scram(image: "MetadataImage") -> Folder:
    """Users and their mechanisms, without the keys that check their passwords."""
    users: dict[str, dict[str, Leaf]] = {}
    for user, credential in image.scram.items():
        users.setdefault(user.name, {})[mechanism_name(user.mechanism)] = {"iterations": credential.iterations}
    return _of(users, _table)


def plain(value: Any) -> Any:
    """A record or a part of it as a JSON value, with ids as Kafka's tools write them."""
    if isinstance(value, bytes):
        return shown_id(value)
    if hasattr(value, "_asdict"):
        return {name: plain(part) for name, part in value._asdict().items()}
    if isinstance(value, tuple | list):
        return [plain(part) for part in value]
    return value


# -- paths


def absolute(here: str, path: str) -> list[str]:
    """The names on the way from the root; `.` and `..` are resolved."""
    parts = [] if path.startswith("/") else [part for part in here.split("/") if part]
    for part in path.split("/"):
        if part == "..":
            parts = parts[:-1]
        elif part not in ("", "."):
            parts.append(part)
    return parts


def at(tree: Folder, parts: list[str]) -> Node:
    """The node at a path. Raises NoSuchPath, which names the missing part."""
    node: Node = tree
    for number, part in enumerate(parts):
        if not isinstance(node, Folder) or not _has(node, part):
            raise NoSuchPath(f"there is no /{'/'.join(parts[: number + 1])}")
        node = node.child(part)
    return node


def _has(folder: Folder, name: str) -> bool:
    names = folder.names()
    return name in names


def walk(node: Node, parts: list[str]) -> Iterator[tuple[list[str], Node]]:
    """The node and all nodes below it, each folder before its content."""
    yield parts, node
    if isinstance(node, Folder):
        for name in node.names():
            yield from walk(node.child(name), [*parts, name])


def whole(node: Node) -> Any:
    """A node as one JSON value."""
    if isinstance(node, Folder):
        return {name: whole(node.child(name)) for name in node.names()}
    return node
