"""KIP-868: a transaction of metadata records becomes visible as a whole or not at all, over batches and restarts."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from fencepost.coordinator.metadata.delta import Change, MetadataCorrupt, MetadataDelta
from fencepost.coordinator.metadata.image import EMPTY_IMAGE, MetadataImage
from fencepost.coordinator.metadata.image_fold import ImageFold
from fencepost.protocol.metadata_entries import MetadataEntry, PartitionRun
from fencepost.protocol.metadata_record_types import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
)

Publisher = Callable[[MetadataDelta], None]
"""Called with each visible step, in order."""


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction whose End or Abort is not in the log yet."""

    start_offset: int
    name: str | None


class MetadataLoader:
    """Folds the metadata log to the visible image.

            Begin                      End: publish
      NONE ------> OPEN --------------------------> NONE
                     \\------ Abort: drop ---------/

    Outside a transaction each batch is published at its end. Inside one, nothing is published until its End, however
    many batches it spans. An Abort drops the fold at that record, before the next one is read. So a batch with an Abort
    and later records cannot publish the aborted ones (kafka-rules E.5: Kafka's loader gets this wrong).
    """

    def __init__(self, image: MetadataImage = EMPTY_IMAGE, publish: Publisher | None = None) -> None:
        self.image = image
        """The newest image that contains only whole transactions."""
        self.holding = False
        """Whether batches outside of transactions are published only by `release`: one image for many batches, which
        is much faster."""
        self.deleted_topic_ids: set[bytes] = set()
        """Every topic whose deletion became visible."""
        self.open: OpenTransaction | None = None
        self._fold = ImageFold(image)
        self._dirty = False
        self._offset = image.offset
        self._publish_to = publish

    @property
    def next_offset(self) -> int:
        return self._offset

    @property
    def last_stable_offset(self) -> int:
        """The offset below which all is decided: the start of the open transaction, or the end (kafka-rules E.3)."""
        return self.open.start_offset if self.open is not None else self._offset

    @property
    def open_records(self) -> int:
        """How many records of the open transaction are loaded, its Begin included."""
        return self._offset - self.open.start_offset if self.open is not None else 0

    def load_batch(self, base_offset: int, entries: Sequence[MetadataEntry]) -> tuple[Change, ...]:
        """Load one batch of the log and return the changes that it made visible.

        Raises MetadataCorrupt for a gap in the offsets, a misplaced transaction record, or a record that contradicts
        the ones before.
        """
        if base_offset != self._offset:
            raise MetadataCorrupt(base_offset, f"offset {self._offset} was expected")
        seen: list[Change] = []
        for entry in entries:
            self._load(entry, seen)
            self._offset += entry.length if type(entry) is PartitionRun else 1
        if self.open is None and not self.holding:
            self._publish(seen)
        return tuple(seen)

    def release(self) -> MetadataImage:
        """Publish the deferred batches, stop deferring, and return the image."""
        self.holding = False
        if self.open is None:
            self._publish([])
        return self.image

    def pass_over(self, base_offset: int, next_offset: int) -> None:
        """Skip the offsets of a batch without metadata, such as Kafka's leader change.

        Raises MetadataCorrupt for a gap.
        """
        if base_offset != self._offset:
            raise MetadataCorrupt(base_offset, f"offset {self._offset} was expected")
        self._offset = next_offset
        if self.open is None:
            self._dirty = True
            if not self.holding:
                self._publish([])

    def _load(self, entry: MetadataEntry, seen: list[Change]) -> None:
        match entry:
            case BeginTransactionRecord():
                if self.open is not None:
                    raise MetadataCorrupt(self._offset, f"a transaction is open since {self.open.start_offset}")
                self._publish(seen)
                self.open = OpenTransaction(self._offset, entry.name)
            case EndTransactionRecord():
                self._need_open("an End")
                self.open = None
                self._dirty = True
                self._publish(seen, self._offset + 1)
            case AbortTransactionRecord():
                self._need_open("an Abort")
                self.open = None
                self._fold = ImageFold(self.image)
                self._dirty = True
                self._publish(seen, self._offset + 1)
            case _:
                self._fold.replay(self._offset, entry)
                self._dirty = True

    def _need_open(self, what: str) -> None:
        if self.open is None:
            raise MetadataCorrupt(self._offset, f"{what} without a transaction")

    def _publish(self, seen: list[Change], offset: int | None = None) -> None:
        if not self._dirty:
            return
        delta = self._fold.apply(self._offset if offset is None else offset)
        self.image = delta.image
        self.deleted_topic_ids |= self._fold.removed_ids
        seen.extend(delta.changes)
        self._fold = ImageFold(self.image)
        self._dirty = False
        if self._publish_to is not None:
            self._publish_to(delta)


def image_of_snapshot(offset: int, batches: Iterable[Sequence[MetadataEntry]]) -> MetadataImage:
    """The image in a snapshot of the log below `offset`.

    Raises MetadataCorrupt for a record that contradicts the ones before, or a transaction record: a snapshot is
    complete, and none is ever written while a transaction is open (kafka-rules E.3, E.4).
    """
    fold = ImageFold(EMPTY_IMAGE)
    for entries in batches:
        for entry in entries:
            if isinstance(entry, BeginTransactionRecord | EndTransactionRecord | AbortTransactionRecord):
                raise MetadataCorrupt(offset, f"{type(entry).__name__} in a snapshot")
            fold.replay(offset, entry)
    return fold.apply(offset).image
