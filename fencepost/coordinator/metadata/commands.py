"""The commands to the metadata controller, and its answers, one per topic, resource or feature."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from fencepost.protocol.admin_enums import UpgradeType
from fencepost.protocol.errors import ErrorCode

NO_ID = bytes(16)


class Outcome(NamedTuple):
    """An error code and, unless it is NONE, the error message."""

    code: ErrorCode = ErrorCode.NONE
    message: str | None = None


DONE = Outcome()
OVER_QUOTA = Outcome(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
"""A controller_mutation_rate refuses the change for now (KIP-599)."""


class NewTopic(NamedTuple):
    """A topic to create. -1 means the broker's default; `assignment` maps a partition to its replicas, or is empty."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignment: tuple[tuple[int, tuple[int, ...]], ...] = ()
    configs: Mapping[str, str | None] = MappingProxyType({})


class CreatedTopic(NamedTuple):
    """The answer for one topic; the numbers are valid only without an error."""

    name: str
    outcome: Outcome
    topic_id: bytes = NO_ID
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = MappingProxyType({})


class TopicRef(NamedTuple):
    """A topic by name or by id."""

    name: str | None = None
    topic_id: bytes = NO_ID


class DeletedTopic(NamedTuple):
    """The answer for one reference."""

    name: str | None
    topic_id: bytes
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class MorePartitions:
    """A topic to grow to `count` partitions; `assignments` has the replicas of each new one, or is None."""

    name: str
    count: int
    assignments: tuple[tuple[int, ...], ...] | None = None


class ConfigEdit(NamedTuple):
    """One change of one configuration; `operation` is the number from the request."""

    name: str
    operation: int
    value: str | None


class ConfigEdits(NamedTuple):
    """Changes of one resource; `replace_all` removes all configurations that are not named (AlterConfigs)."""

    resource_type: int
    resource_name: str
    edits: tuple[ConfigEdit, ...]
    replace_all: bool = False


class FeatureUpdate(NamedTuple):
    """A feature and the level at which to finalize it; 0 removes the feature."""

    name: str
    level: int
    upgrade_type: int = UpgradeType.UPGRADE
