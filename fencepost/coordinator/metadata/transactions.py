"""KIP-868: a transaction of metadata records shows as a whole or not at all, over batches, crashes and restarts."""

from dataclasses import dataclass
from typing import assert_never

from fencepost.coordinator.metadata.delta import Change, MetadataCorrupt, MetadataDelta
from fencepost.coordinator.metadata.image import EMPTY_IMAGE, MetadataImage
from fencepost.protocol.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A Begin without its End or Abort so far."""

    start_offset: int
    name: str | None


class MetadataLoader:
    """Folds the metadata log to the image that may be shown.

            Begin                      End: publish
      NONE ------> OPEN --------------------------> NONE
                     \\------ Abort: drop ---------/

    Outside a transaction each batch is published at its end. Inside one nothing is, whatever batches it spans, until
    its End. An Abort drops the delta at that very record, before the next is looked at, so that a batch which holds
    an Abort and more can not carry the aborted records along (kafka-rules E.5: Kafka's loader gets this wrong).
    """

    def __init__(self, image: MetadataImage = EMPTY_IMAGE) -> None:
        self.image = image
        """The newest image that holds whole transactions only."""
        self.open: OpenTransaction | None = None
        self._delta = MetadataDelta(image)
        self._dirty = False
        self._offset = image.offset

    @property
    def next_offset(self) -> int:
        """The offset after the last record that was taken in."""
        return self._offset

    @property
    def last_stable_offset(self) -> int:
        """Up to here everything is decided: the start of the open transaction, or the end (kafka-rules E.3)."""
        return self.open.start_offset if self.open is not None else self._offset

    def load_batch(self, base_offset: int, records: list[MetadataRecord]) -> tuple[Change, ...]:
        """Take in one batch of the log and return what became visible by it.

        Raises MetadataCorrupt for a gap in the offsets, a transaction record out of place, or a record that cannot
        follow the ones before.
        """
        if base_offset != self._offset:
            raise MetadataCorrupt(base_offset, f"offset {self._offset} was expected")
        seen: list[Change] = []
        for record in records:
            self._load(record, seen)
            self._offset += 1
        if self.open is None:
            self._publish(seen)
        return tuple(seen)

    def _load(self, record: MetadataRecord, seen: list[Change]) -> None:
        match record:
            case BeginTransactionRecord():
                if self.open is not None:
                    raise MetadataCorrupt(self._offset, f"a transaction is open since {self.open.start_offset}")
                self._publish(seen)
                self.open = OpenTransaction(self._offset, record.name)
            case EndTransactionRecord():
                self._need_open("an End")
                self.open = None
                self._dirty = True
                self._publish(seen, self._offset + 1)
            case AbortTransactionRecord():
                self._need_open("an Abort")
                self.open = None
                self._delta = MetadataDelta(self.image)
                self._dirty = True
                self._publish(seen, self._offset + 1)
            case (
                TopicRecord()
                | PartitionRecord()
                | ConfigRecord()
                | RemoveTopicRecord()
                | FeatureLevelRecord()
                | ProducerIdsRecord()
                | NoOpRecord()
            ):
                self._delta.replay(self._offset, record)
                self._dirty = True
            case _:
                assert_never(record)

    def _need_open(self, what: str) -> None:
        if self.open is None:
            raise MetadataCorrupt(self._offset, f"{what} without a transaction")

    def _publish(self, seen: list[Change], offset: int | None = None) -> None:
        if not self._dirty:
            return
        self.image, changes = self._delta.apply(self._offset if offset is None else offset)
        seen.extend(changes)
        self._delta = MetadataDelta(self.image)
        self._dirty = False
