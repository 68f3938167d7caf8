"""The aborted transactions of one segment, in Kafka's `.txnindex` bytes (rows I2 and I3)."""

from bisect import bisect_left
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from fencepost.broker.log.storage.indexes import IndexFile
from fencepost.broker.log.storage.store import CorruptLogFile, StoredFile

TXN_ENTRY = Struct(">hqqqq")
"""Version (0), producer id, first offset, last offset (the marker's), last stable offset: 34 bytes."""

_VERSION = 0


class AbortedTransaction(NamedTuple):
    """One aborted transaction on one partition; its entry is in the index of the marker's segment."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    """The first offset of the oldest transaction still open at the marker: readers below it need no later entry."""


class TxnIndex(IndexFile):
    """`.txnindex` of one segment; the file exists only if the segment has an abort marker."""

    def __init__(self, file: StoredFile) -> None:
        super().__init__(file, TXN_ENTRY)
        self._appended_last = -1

    def append(self, aborted: AbortedTransaction) -> None:
        """Add an abort. Entries must come in the order of their markers, because searches rely on it.

        Reads nothing from the disk: the marker is in the log already, so nothing may fail here.
        """
        assert self._appended_last < aborted.last_offset, "aborts are noted in the order of their markers"
        self._appended_last = aborted.last_offset
        self.add(_VERSION, *aborted)

    def truncate(self, count: int) -> None:
        self._appended_last = -1
        super().truncate(count)

    def all(self) -> Iterator[AbortedTransaction]:
        return self._from(0)

    def since(self, offset: int) -> Iterator[AbortedTransaction]:
        return self._from(bisect_left(self, offset, key=_last_offset))

    def collect(self, fetch_offset: int, upper_bound: int) -> tuple[list[AbortedTransaction], bool]:
        """The aborted transactions that overlap [fetch_offset, upper_bound), and whether they are complete.

        Row I2: an entry counts if it ends at or after `fetch_offset` and begins before `upper_bound`. Once an entry's
        LSO reaches `upper_bound`, all transactions that ended later began later, too, so later segments add none.
        """
        found = []
        for aborted in self._from(bisect_left(self, fetch_offset, key=_last_offset)):
            if aborted.first_offset < upper_bound:
                found.append(aborted)
            if aborted.last_stable_offset >= upper_bound:
                return found, True
        return found, False

    def keep_within(self, base_offset: int, end_offset: int) -> None:
        """Keep the leading entries whose markers rise within the two offsets; drop all from the first other one on.

        After a crash the file may end in garbage; the scan adds the entries above its start again. Raises OSError.
        """
        count, last = 0, base_offset - 1
        for version, _, _, last_offset, _ in self.entries():
            if version != _VERSION or not last < last_offset < end_offset:
                break
            count, last = count + 1, last_offset
        self.truncate(count)

    def _from(self, start: int) -> Iterator[AbortedTransaction]:
        for number, (version, *fields) in enumerate(self.entries(start), start):
            if version > _VERSION:
                raise CorruptLogFile(self.file.place, number * TXN_ENTRY.size, f"entry version {version} is not known")
            yield AbortedTransaction(*fields)


def _last_offset(entry: tuple[int, ...]) -> int:
    return entry[3]
