"""The entries of the metadata log in memory: a record, or a run of equal partitions."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fencepost.protocol.metadata_record_types import MetadataRecord, PartitionRecord

UNASSIGNED_DIRECTORY = bytes(16)
"""The directory id of a replica that is not assigned to a directory yet (KIP-858)."""


class PartitionRun(NamedTuple):
    """`length` PartitionRecords of one topic, from `first.partition_id` on, that differ only in their partition id.

    The log has one record for each; in memory, where there may be a million, they are one value.
    """

    first: PartitionRecord
    length: int

    def records(self) -> Iterator[PartitionRecord]:
        for number in range(self.first.partition_id, self.first.partition_id + self.length):
            yield self.first._replace(partition_id=number)

    def between(self, start: int, stop: int) -> "PartitionRun":
        return PartitionRun(self.first._replace(partition_id=self.first.partition_id + start), stop - start)


MetadataEntry = MetadataRecord | PartitionRun
"""A record, or a run of them."""


def record_count(entries: Iterable[MetadataEntry]) -> int:
    return sum(entry.length if isinstance(entry, PartitionRun) else 1 for entry in entries)
