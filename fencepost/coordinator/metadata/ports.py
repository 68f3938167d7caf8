"""What the metadata controller needs to be told by the broker: which settings there are, and the broker's defaults."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fencepost.coordinator.metadata.delta import Change
from fencepost.coordinator.metadata.image import MetadataImage, ResourceType

Observer = Callable[[Sequence[Change]], None]
"""Told of changes once they are durable and in the image, in order; it must not block."""
IdSource = Callable[[], bytes]
"""A fresh random topic id of 16 bytes."""


class ConfigRules(Protocol):
    """The settings of topics and brokers, as their declarations have them."""

    def topic_problem(self, configs: Mapping[str, str]) -> str | None:
        """Why this whole set of a topic's configurations is INVALID_CONFIG, or None."""
        ...

    def group_problem(self, configs: Mapping[str, str]) -> str | None:
        """Why this whole set of a group's configurations is INVALID_CONFIG, or None."""
        ...

    def broker_problem(self, configs: Mapping[str, str | None]) -> str | None:
        """Why this set of run-time broker configurations is impossible, or None; a value of None takes one away."""
        ...

    def is_list(self, kind: ResourceType, name: str) -> bool:
        """Whether APPEND and SUBTRACT make sense for a configuration."""
        ...

    def default_text(self, image: MetadataImage, kind: ResourceType, name: str) -> str | None:
        """What holds where nothing was set: the broker's value for a topic's configuration, or a setting's default."""
        ...

    def log_config(self, image: MetadataImage, topic: str) -> Any:
        """How the partitions of a topic keep their data, as the machine room wants it said."""
        ...


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What one node knows of itself and its defaults.

    `topic_partitions_max` bounds one topic, `change_records_max` one request (a change of that size blocks everything
    else for the time it takes to write it).
    """

    cluster_id: str
    node_id: int
    default_partitions: int = 1
    auto_create_topics: bool = True
    delete_topics: bool = True
    offsets_partitions: int = 50
    transaction_partitions: int = 50
    offsets_segment_bytes: int = 100 << 20
    transaction_segment_bytes: int = 100 << 20
    topic_partitions_max: int = 100_000
    change_records_max: int = 100_000
