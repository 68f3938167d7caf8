"""What is handled as one of the metadata log: a record, or a run of partitions that are alike."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fencepost.protocol.metadata_record_types import MetadataRecord, PartitionRecord

UNASSIGNED_DIRECTORY = bytes(16)
"""The directory of a replica that was not placed in one yet (KIP-858)."""


class PartitionRun(NamedTuple):
    """`length` PartitionRecords of one topic, from `first.partition_id` on, that differ in their number only.

    They stand in the log as so many records: this is how they are held in memory, where there may be a million.
    """

    first: PartitionRecord
    length: int

    def records(self) -> Iterator[PartitionRecord]:
        """One by one."""
        for number in range(self.first.partition_id, self.first.partition_id + self.length):
            yield self.first._replace(partition_id=number)

    def between(self, start: int, stop: int) -> "PartitionRun":
        """Those from place `start` to before place `stop`."""
        return PartitionRun(self.first._replace(partition_id=self.first.partition_id + start), stop - start)


MetadataEntry = MetadataRecord | PartitionRun
"""What is handled as one: a record, or a run of them."""


def record_count(entries: Iterable[MetadataEntry]) -> int:
    """How many records stand in the log for these."""
    return sum(entry.length if isinstance(entry, PartitionRun) else 1 for entry in entries)
