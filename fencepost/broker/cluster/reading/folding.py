"""What the rows of a log add up to: its producers, its aborted transactions, its leader epochs.

A snapshot stands for the rows below its base. Above it the rows are runs, whose heads are replayed as recovery replays
batches.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from fencepost.broker.cluster.engine import Head, Row, Snapshot
from fencepost.broker.log.producer_state import OpenTransaction, ProducerStates
from fencepost.broker.log.recovery.scanning import replay
from fencepost.broker.log.recovery.snapshots import decode_snapshot, encode_snapshot
from fencepost.broker.log.storage.checkpoints import decode_epochs, encode_epochs
from fencepost.broker.log.storage.store import CorruptLogFile
from fencepost.broker.log.storage.txn_index import TXN_ENTRY, AbortedTransaction
from fencepost.protocol.batch_header import HEADER_SIZE, BatchHeader, CorruptBatch, assign_offset, read_header

PRODUCERS = "producers"
"""The kind of a snapshot of the producers' state, in Kafka's format of a producer snapshot."""
EPOCHS = "epochs"
"""The kind of a snapshot of the leader epochs, in Kafka's format of the leader epoch checkpoint."""
CLEANED = "cleaned"
"""The kind of a snapshot whose base is the first offset that no compaction has reached; it has no value."""
METADATA = "metadata"
"""The kind of a snapshot of the metadata: its file's name, a newline, and the file."""
LINGERING = "deleted-topics"
"""The kind of the list of deleted topics that belongs to it, in the same form."""
_VERSION = 0


class LogState:
    """The state of a log at one offset: `end`."""

    def __init__(self, name: str, snapshots: Iterable[Snapshot] = ()) -> None:
        """The state in the snapshots of a log, or that of an empty log. Raises CorruptLogFile."""
        self.name = name
        self.producers = ProducerStates()
        self.epochs: list[tuple[int, int]] = []
        """Leader epochs with their first offsets, rising."""
        self.end = 0
        for snapshot in snapshots:
            place = f"the snapshot of the {snapshot.kind} of {name}"
            if snapshot.kind == PRODUCERS:
                self.producers = ProducerStates(decode_snapshot(snapshot.value, place))
                self.end = snapshot.base
            elif snapshot.kind == EPOCHS:
                self.epochs = decode_epochs(snapshot.value, place)

    def follow(self, row: Row) -> list[AbortedTransaction]:
        """Add the next row, unless the snapshots contain it. Returns the aborted transactions that end in it.

        Raises CorruptLogFile.
        """
        if row.base >= self.end and (not self.epochs or self.epochs[-1][0] < row.leader_epoch):
            self.epochs.append((row.leader_epoch, row.base))
        if row.heads is None:
            return aborted_in(row)
        if row.base < self.end:
            raise CorruptLogFile(self.name, row.base, f"a run is below the producer snapshot at {self.end}")
        aborted = []
        for data, header in heads_of(row, self.name):
            ended = replay(self.producers, self.name, header.base_offset, header, memoryview(data))
            if ended is not None:
                aborted.append(ended)
        self.end = row.end
        return aborted

    def snapshots(self, log: int) -> list[Snapshot]:
        """The state as snapshots at `end`."""
        return [
            Snapshot(log, self.end, PRODUCERS, encode_snapshot(self.producers.entries())),
            Snapshot(log, self.end, EPOCHS, encode_epochs(self.epochs)),
        ]


class Folded(NamedTuple):
    """What a partition's rows add up to."""

    stable: int
    """The last stable offset."""
    open: OpenTransaction | None
    """The oldest open transaction."""
    aborted: list[AbortedTransaction]
    """The aborted transactions by their markers' offsets: the list by which readers filter."""
    producers: ProducerStates
    """At the end of the log."""


class Index(NamedTuple):
    """All that the database has about one log, but for the bytes of inline rows."""

    head: Head
    rows: Sequence[Row]
    snapshots: Sequence[Snapshot]
    """Of the producers, if there is one."""
    cleaned_to: int
    """The first offset that no finished compaction has reached; 0 if there was none."""

    @property
    def folded_to(self) -> int:
        return max((snapshot.base for snapshot in self.snapshots), default=0)

    def fold(self) -> Folded:
        """What the rows add up to. Raises CorruptLogFile if a snapshot or the headers in a row are damaged."""
        head, state, aborted = self.head, LogState(self.head.name, self.snapshots), list[AbortedTransaction]()
        for row in self.rows:
            aborted += state.follow(row)
        oldest = next(state.producers.open_transactions(), None)
        stable = head.next if oldest is None else max(oldest.first_offset, head.start)
        return Folded(stable, oldest, aborted, state.producers)


def aborted_in(row: Row) -> list[AbortedTransaction]:
    return [AbortedTransaction(*fields[1:]) for fields in TXN_ENTRY.iter_unpack(row.aborted)]


def encode_aborted(aborted: Iterable[AbortedTransaction]) -> bytes:
    return b"".join(TXN_ENTRY.pack(_VERSION, *one) for one in aborted)


def heads_of(row: Row, place: str) -> Iterator[tuple[bytearray, BatchHeader]]:
    """The headers of a run's batches, and whole control batches, with their offsets. Raises CorruptLogFile."""
    view, position, offset = memoryview(row.heads or b""), 0, row.base
    try:
        while position < len(view):
            header = read_header(view, position, whole=False)
            size_bytes = header.size_bytes if header.is_control else HEADER_SIZE
            data = bytearray(view[position : position + size_bytes])
            assign_offset(data, 0, offset, row.leader_epoch)
            header = read_header(data, whole=False)
            yield data, header
            position, offset = position + size_bytes, header.next_offset
    except CorruptBatch as error:
        raise CorruptLogFile(place, row.base, f"the row's headers are damaged: {error}") from error
    if offset != row.end:
        raise CorruptLogFile(place, row.base, f"the row's headers end at offset {offset}, not {row.end}")
