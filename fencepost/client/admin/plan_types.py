"""A plan: topics, settings and access rules as they shall be; and what has to change for that."""

from collections.abc import Mapping
from os import PathLike
from types import MappingProxyType
from typing import Any, NamedTuple

from fencepost.client.admin.security_types import Acl
from fencepost.protocol.admin_enums import ConfigSource

Settings = Mapping[str, str | None]
NOTHING: Settings = MappingProxyType({})


class WantedTopic(NamedTuple):
    """A topic as it shall be. A number of -1 stands for what is there, or, of a new topic, for the broker's default.

    `configs` are settings in Kafka's units; None takes one away, and those that are not named stay. `absent`: it shall
    be deleted, if it is there.
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Settings = NOTHING
    absent: bool = False


class WantedConfigs(NamedTuple):
    """Settings of brokers or of a group as they shall be; None takes one away, and those that are not named stay.

    `kind` is "broker" (`name` is an id, or "" for all brokers) or "group".
    """

    kind: str
    name: str
    configs: Settings


class WantedAcl(NamedTuple):
    """An access rule that shall be there, or, with `absent`, shall not."""

    rule: Acl
    absent: bool = False


class ClusterPlan(NamedTuple):
    """Topics, settings and access rules as they shall be. What a plan does not name stays as it is.

    `read` and `from_mapping` make one of a file or of what such a file holds (docs/cli.md has the form).
    """

    topics: tuple[WantedTopic, ...] = ()
    configs: tuple[WantedConfigs, ...] = ()
    acls: tuple[WantedAcl, ...] = ()

    @classmethod
    def read(cls, path: str | PathLike[str]) -> "ClusterPlan":
        """The plan in a TOML or JSON file. Raises ConfigError, which names the place, and OSError."""
        from fencepost.client.admin.plan_file import read_plan  # here: few programs read files

        return read_plan(path)

    @classmethod
    def from_mapping(cls, content: Mapping[str, Any]) -> "ClusterPlan":
        """The plan in what a file of it holds. Raises ConfigError, which names the place."""
        from fencepost.client.admin.plan_file import plan_of

        return plan_of(content)


class PlannedChange(NamedTuple):
    """One thing that has to change: `action` is "create", "change" or "delete".

    `kind` is "topic", "broker", "group" or "acl"; `setting` a setting's name, "partitions", or "" for the whole.
    `before` and `after` are None where there is nothing, and "(secret)" where there is something that nobody may see.
    """

    action: str
    kind: str
    name: str
    setting: str = ""
    before: str | None = None
    after: str | None = None


class Applied(NamedTuple):
    """What applying a plan has changed, or would change. Nothing, where all is as it shall be.

    `atomic`: it shows as one, or not at all.
    """

    changes: tuple[PlannedChange, ...]
    atomic: bool


def subject_of(kind: str, name: str) -> dict[str, Any]:
    """Whose settings: as the admin calls take it. Of a broker `name` is its id, or "" for all."""
    return {kind: int(name) if kind == "broker" and name else name}


def own_source(kind: str, name: object) -> ConfigSource:
    """The source of what is set on a topic, broker or group itself."""
    if kind == "broker":
        return ConfigSource.ALL_BROKERS if name == "" else ConfigSource.BROKER
    return ConfigSource.TOPIC if kind == "topic" else ConfigSource.GROUP


def shown_rule(rule: Acl) -> str:
    """An access rule in a line: `User:billing READ TOPIC orders, ALLOW from *`."""
    prefixed = "" if rule.pattern_type.name == "LITERAL" else f" ({rule.pattern_type.name})"
    what = f"{rule.resource_type.name} {rule.name}{prefixed}"
    return f"{rule.principal} {rule.operation.name} {what}, {rule.permission.name} from {rule.host}"
