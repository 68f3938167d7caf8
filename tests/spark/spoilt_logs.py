"""A partition's log taken apart into batches, spoilt, and put back as one segment: for audits that must notice."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fencepost.broker.log.storage.txn_index import TXN_ENTRY
from fencepost.protocol.batch_header import BatchHeader, assign_offset, iter_headers, read_header
from fencepost.protocol.control_records import ControlType, control_type

_FIRST = "00000000000000000000"


@dataclass
class Batch:
    """One batch, and its header as it was."""

    data: bytearray
    header: BatchHeader

    @property
    def kind(self) -> str:
        """commit, abort, data (of a transaction) or plain."""
        if self.header.is_control:
            return "commit" if control_type(self.data, 0, self.header) is ControlType.COMMIT else "abort"
        return "data" if self.header.is_transactional else "plain"


@dataclass
class TakenApart:
    """The log of one partition: its batches, and the entries of its lists of aborted transactions."""

    directory: Path
    batches: list[Batch]
    entries: list[list[int]]

    @classmethod
    def of(cls, directory: Path) -> TakenApart:
        batches = []
        for path in sorted(directory.glob("*.log")):
            data = path.read_bytes()
            for at, header in iter_headers(data):
                batches.append(Batch(bytearray(data[at : at + header.size_bytes]), header))
        entries = [
            list(entry)
            for path in sorted(directory.glob("*.txnindex"))
            for entry in TXN_ENTRY.iter_unpack(path.read_bytes())
        ]
        return cls(directory, batches, entries)

    def first(self, kind: str, skip: int = 0) -> int:
        """The number of the first batch of a kind, or of one further on."""
        return [number for number, batch in enumerate(self.batches) if batch.kind == kind][skip]

    def copy(self, number: int) -> Batch:
        """A batch once more."""
        batch = self.batches[number]
        return Batch(bytearray(batch.data), batch.header)

    def renumber(self) -> None:
        """Make the offsets dense again, as if a broker had written just these batches; the list follows."""
        moved: dict[int, int] = {}
        following = 0
        for batch in self.batches:
            for number in range(batch.header.last_offset_delta + 1):
                moved[batch.header.base_offset + number] = following + number
            assign_offset(batch.data, 0, following, 0)
            batch.header = read_header(batch.data)
            following = batch.header.next_offset
        for entry in self.entries:
            entry[2:5] = [moved.get(offset, offset) for offset in entry[2:5]]

    def put_back(self) -> None:
        """Write all of it as one segment."""
        for path in [*self.directory.glob("0*.*")]:
            path.unlink()
        (self.directory / f"{_FIRST}.log").write_bytes(b"".join(batch.data for batch in self.batches))
        packed = b"".join(TXN_ENTRY.pack(*entry) for entry in self.entries)
        (self.directory / f"{_FIRST}.txnindex").write_bytes(packed)


def spoilt(directory: Path, target: Path, partition: str, spoil: Callable[[TakenApart], None]) -> Path:
    """A copy of a data directory, one partition of which went through `spoil`."""
    shutil.copytree(directory, target)
    log = TakenApart.of(target / partition)
    spoil(log)
    log.put_back()
    return target
