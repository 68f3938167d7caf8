"""A plan, with the wanted topics, settings and access rules; and the changes that it needs."""

from collections.abc import Mapping
from os import PathLike
from types import MappingProxyType
from typing import Any, NamedTuple

from fencepost.client.admin.security_types import Acl
from fencepost.protocol.admin_enums import ConfigSource


class WantedTopic(NamedTuple):
    """A wanted topic. A number of -1 keeps the present number; a new topic gets the broker's default.

    `configs` are settings in Kafka's units; None removes a setting, and other settings stay. `absent`: delete the topic
    if it exists.
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str | None] = MappingProxyType({})
    absent: bool = False


class WantedConfigs(NamedTuple):
    """Wanted settings of brokers or of a group; None removes a setting, and settings without an entry stay.

    `kind` is "broker" (`name` is an id, or "" for all brokers) or "group".
    """

    kind: str
    name: str
    configs: Mapping[str, str | None]


class WantedAcl(NamedTuple):
    """An access rule to create or, with `absent`, to delete."""

    rule: Acl
    absent: bool = False


class ClusterPlan(NamedTuple):
    """Wanted topics, settings and access rules. All others stay as they are.

    `read` and `from_mapping` make a plan from a file or from the content of one (docs/cli.md describes the form).
    """

    topics: tuple[WantedTopic, ...] = ()
    configs: tuple[WantedConfigs, ...] = ()
    acls: tuple[WantedAcl, ...] = ()

    @classmethod
    def read(cls, path: str | PathLike[str]) -> "ClusterPlan":
        """The plan in a TOML or JSON file. Raises ConfigError, which names the place in the file, and OSError."""
        from fencepost.client.admin.plan_file import read_plan  # here: few programs read files

        return read_plan(path)

    @classmethod
    def from_mapping(cls, content: Mapping[str, Any]) -> "ClusterPlan":
        """The plan in the content of such a file. Raises ConfigError, which names the place in the content."""
        from fencepost.client.admin.plan_file import plan_of

        return plan_of(content)


class PlannedChange(NamedTuple):
    """One change that a plan needs: `action` is "create", "change" or "delete".

    `kind` is "topic", "broker", "group" or "acl"; `setting` a setting's name, "partitions", or "" for the whole.
    `before` and `after` are None for no value, and "(secret)" for a secret value.
    """

    action: str
    kind: str
    name: str
    setting: str = ""
    before: str | None = None
    after: str | None = None


class Applied(NamedTuple):
    """The changes that `Admin.apply` made, or would make; none if the plan already holds.

    `atomic`: readers see all changes or none.
    """

    changes: tuple[PlannedChange, ...]
    atomic: bool


def subject_of(kind: str, name: str) -> dict[str, Any]:
    """The arguments of `describe_configs` for a thing. The name of a broker is its id, or "" for all brokers."""
    return {kind: int(name) if kind == "broker" and name else name}


def own_source(kind: str, name: object) -> ConfigSource:
    """The source of settings of a topic, broker or group itself."""
    if kind == "broker":
        return ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG if name == "" else ConfigSource.DYNAMIC_BROKER_CONFIG
    return ConfigSource.DYNAMIC_TOPIC_CONFIG if kind == "topic" else ConfigSource.DYNAMIC_GROUP_CONFIG


def shown_rule(rule: Acl) -> str:
    """An access rule in a line: `User:billing READ TOPIC orders, ALLOW from *`."""
    prefixed = "" if rule.pattern_type.name == "LITERAL" else f" ({rule.pattern_type.name})"
    what = f"{rule.resource_type.name} {rule.name}{prefixed}"
    return f"{rule.principal} {rule.operation.name} {what}, {rule.permission.name} from {rule.host}"
