"""What the metadata controller needs to be told by the broker: which settings there are, and the broker's defaults."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from fencepost.coordinator.metadata.commands import Outcome
from fencepost.coordinator.metadata.delta import Change
from fencepost.coordinator.metadata.image import MetadataImage
from fencepost.coordinator.ports import Ticket
from fencepost.protocol.admin_enums import ConfigResourceType

Observer = Callable[[Sequence[Change]], None]
"""Told of changes once they are durable and in the image, in order; it must not block."""
IdSource = Callable[[], bytes]
"""A fresh random topic id of 16 bytes."""


class MetadataLog(Protocol):
    """The metadata log as one controller sees it: it goes as far as that controller has read or written.

    An append is conditional on that. Where another controller wrote meanwhile it changes nothing and raises
    LogSuperseded, which is how the old one hears that it is one no more; `read` then gives what the other one wrote.
    Where the log learns that only later, the append's ticket raises it, and so do those of all appends after it: `seek`
    goes back to where they began.
    """

    @property
    def end_offset(self) -> int:
        """The offset after the last record that was read or written through this view."""

    @property
    def newest(self) -> Ticket:
        """A ticket for everything below `end_offset`."""

    def append(self, values: Sequence[bytes], now_ms: int) -> Ticket:
        """Append `values` as one atomic batch, at `end_offset` or not at all: image offsets and broker epochs are
        known from it at once. Raises LogSuperseded, and LogWriteFailed where the log refuses.
        """

    def read(self) -> Iterator["LoggedBatch"]:
        """Every batch from `end_offset` on, which moves on with them. Raises LogUnreadable at the first damaged one."""

    def seek(self, offset: int) -> None:
        """Begin at this offset: a snapshot stands for what is before it. Raises LogUnreadable where that is gone."""


class LoggedBatch(NamedTuple):
    """One batch of the metadata log; `values` is None for a control batch, which says nothing about metadata."""

    base_offset: int
    next_offset: int
    timestamp_ms: int
    values: Sequence[bytes] | None


class Snapshots(Protocol):
    """Where images of the metadata are kept, so that a start need not read all of the log."""

    def newest(self) -> MetadataImage | None:
        """The newest image that can be read and used. Raises MetadataCorrupt where there must be one, and is none."""

    async def write(self, image: MetadataImage) -> None:
        """Keep an image durably, and let go of what it makes dispensable. Raises OSError.

        Everything below its offset is durable and decided, and a batch ends there.
        """


class Bounds(NamedTuple):
    """How large one append and one transaction may be."""

    append_bytes_max: int = 8 << 20
    append_records_max: int = 10_000
    """Kafka's two bounds of a Raft batch (kafka-rules E.6)."""
    transaction_bytes_max: int = 1 << 30
    transaction_seconds_max: float = 60.0
    """What takes longer is aborted: nobody else can change anything meanwhile."""


class ConfigRules(Protocol):
    """The settings of topics and brokers, as their declarations have them."""

    def topic_problem(self, configs: Mapping[str, str]) -> str | None:
        """Why this whole set of a topic's configurations is INVALID_CONFIG, or None."""

    def group_problem(self, configs: Mapping[str, str]) -> str | None:
        """Why this whole set of a group's configurations is INVALID_CONFIG, or None."""

    def client_metrics_problem(self, configs: Mapping[str, str]) -> Outcome | None:
        """Why a subscription of client metrics cannot have this whole set of settings, or None."""

    def broker_problem(self, configs: Mapping[str, str | None]) -> str | None:
        """Why this set of run-time broker configurations is impossible, or None; a value of None takes one away."""

    def is_list(self, kind: ConfigResourceType, name: str) -> bool:
        """Whether APPEND and SUBTRACT make sense for a configuration."""

    def default_text(self, image: MetadataImage, kind: ConfigResourceType, name: str) -> str | None:
        """What holds where nothing was set: the broker's value for a topic's configuration, or a setting's default."""

    def log_config(self, image: MetadataImage, topic: str) -> Any:
        """How the partitions of a topic keep their data, as the machine room wants it said."""


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What one node knows of itself and its defaults.

    `topic_partitions_max` bounds one topic, `change_records_max` one request (while it is written no other change is
    decided).
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
    topic_partitions_max: int = 1_000_000
    change_records_max: int = 2_000_000
