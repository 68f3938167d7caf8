"""What the metadata controller needs from the broker: the log, snapshots, settings and defaults."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from fencepost.coordinator.metadata.commands import Outcome
from fencepost.coordinator.metadata.delta import Change, MetadataCorrupt
from fencepost.coordinator.metadata.image import MetadataImage
from fencepost.coordinator.ports import Ticket
from fencepost.protocol.admin_enums import ConfigResourceType
from fencepost.protocol.metadata_entries import MetadataEntry, record_count
from fencepost.protocol.metadata_records import MetadataRecordError, decode_metadata_records

Observer = Callable[[Sequence[Change]], None]
"""Called with changes once they are durable and in the image, in order; it must not block."""
MutationQuota = Callable[[int], bool]
"""Counts the creation or deletion of this many partitions (KIP-599). False: the quota refuses it."""
IdSource = Callable[[], bytes]
"""A fresh random topic id of 16 bytes."""


class MetadataLog(Protocol):
    """The metadata log as one controller sees it: up to the offset that this controller has read or written.

    An append is conditional on that offset. If another controller wrote meanwhile, the append changes nothing and
    raises LogSuperseded: so the old controller learns that it was replaced. `read` then returns the other one's
    batches. If the log learns it only later, the tickets of that append and of all later ones raise it: `seek` goes
    back to where the first of them began.
    """

    @property
    def end_offset(self) -> int:
        """The offset after the last record that was read or written through this view."""

    @property
    def newest(self) -> Ticket:
        """A ticket for everything below `end_offset`."""

    def append(self, values: Sequence[bytes], now_ms: int) -> Ticket:
        """Append `values` as one atomic batch, at `end_offset` or not at all: so image offsets and broker epochs are
        known at once. Raises LogSuperseded, and LogWriteFailed if the log refuses.
        """

    def in_one_commit(self) -> AbstractContextManager[bool]:
        """Let appends wait for the end of this context, and commit them all at once, if the store can do that.

        Yields whether it can. If not, each append becomes durable on its own.
        """

    def read(self) -> Iterator["LoggedBatch"]:
        """Every batch from `end_offset` on; each moves `end_offset`. Raises LogUnreadable at the first damaged one."""

    def seek(self, offset: int) -> None:
        """Start reading at this offset, the end of a snapshot. Raises LogUnreadable if the log lacks it."""


class LoggedBatch(NamedTuple):
    """One batch of the metadata log; `values` is None for a control batch, which has no metadata."""

    base_offset: int
    next_offset: int
    timestamp_ms: int
    values: Sequence[bytes] | None

    def entries(self) -> list[MetadataEntry]:
        """The decoded values; none of a control batch. Raises MetadataCorrupt."""
        found: list[MetadataEntry] = []
        try:
            found.extend(decode_metadata_records(self.values or ()))
        except MetadataRecordError as error:
            raise MetadataCorrupt(self.base_offset + record_count(found), str(error)) from error
        return found


class Snapshots(Protocol):
    """The store of metadata images, so that a start need not read the whole log."""

    def newest(self) -> MetadataImage | None:
        """The newest readable image; None if none is needed. Raises MetadataCorrupt if a needed one is missing."""

    async def write(self, image: MetadataImage) -> None:
        """Store an image durably, unless it is stored already, and delete what it replaces. Raises OSError.

        Everything below its offset is durable and decided, and a batch ends there.
        """


class Bounds(NamedTuple):
    """How large one append and one transaction may be."""

    append_bytes_max: int = 8 << 20
    append_records_max: int = 10_000
    """Kafka's two bounds of a Raft batch (kafka-rules E.6)."""
    transaction_bytes_max: int = 1 << 30
    transaction_seconds_max: float = 60.0
    """A longer transaction is aborted, because no other change can be made meanwhile."""


class ConfigRules(Protocol):
    """The settings of topics and brokers, from their declarations."""

    def topic_problem(self, configs: Mapping[str, str]) -> str | None:
        """Why this whole set of a topic's configurations is INVALID_CONFIG, or None."""

    def group_problem(self, configs: Mapping[str, str]) -> str | None:
        """Why this whole set of a group's configurations is INVALID_CONFIG, or None."""

    def client_metrics_problem(self, configs: Mapping[str, str]) -> Outcome | None:
        """Why a subscription of client metrics cannot have this whole set of settings, or None."""

    def broker_problem(self, name: str, configs: Mapping[str, str | None]) -> str | None:
        """Why a broker (an empty name: all brokers) cannot have these run-time configurations, or None.

        A value of None removes one.
        """

    def is_list(self, kind: ConfigResourceType, name: str) -> bool:
        """Whether APPEND and SUBTRACT make sense for a configuration."""

    def default_text(self, image: MetadataImage, kind: ConfigResourceType, name: str) -> str | None:
        """The default of a configuration: the broker's value for a topic's configuration, else that of the setting."""

    def log_config(self, image: MetadataImage, topic: str) -> Any:
        """The log settings of a topic's partitions, as the broker's logs take them."""


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """A node's ids, defaults and bounds.

    `topic_partitions_max` bounds one topic, `change_records_max` one request: while it is written, no other change is
    decided.
    """

    cluster_id: str
    node_id: int
    node_ids: tuple[int, ...] = ()
    default_partitions: int = 1
    auto_create_topics: bool = True
    delete_topics: bool = True
    offsets_partitions: int = 50
    transaction_partitions: int = 50
    offsets_segment_bytes: int = 100 << 20
    transaction_segment_bytes: int = 100 << 20
    topic_partitions_max: int = 1_000_000
    change_records_max: int = 2_000_000

    @property
    def brokers(self) -> tuple[int, ...]:
        """The brokers that partitions are placed on, in turns: `node_ids`, or without them this one."""
        return self.node_ids or (self.node_id,)
