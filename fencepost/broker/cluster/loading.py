"""What a broker reads from the stores before it serves logs: their rows, and the state that their rows fold to."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from fencepost.broker.cluster.engine import Engine, Head, Row, RowKind
from fencepost.broker.cluster.rounds import Foreign, RowBytes, foreign_rows
from fencepost.broker.log.producer_state import ProducerStates
from fencepost.broker.log.recovery.scanning import replay
from fencepost.broker.log.recovery.snapshots import decode_snapshot
from fencepost.broker.log.storage.store import CorruptLogFile
from fencepost.broker.log.storage.txn_index import TXN_ENTRY, AbortedTransaction
from fencepost.protocol.batch_header import HEADER_SIZE, BatchHeader, CorruptBatch, assign_offset, read_header
from fencepost.protocol.topics import GROUP_TOPIC, METADATA_TOPIC, TRANSACTION_TOPIC

INTERNAL_TOPICS = (METADATA_TOPIC, GROUP_TOPIC, TRANSACTION_TOPIC)

PRODUCERS = "producers"
"""The kind of a snapshot of the producers' state."""


@dataclass(slots=True)
class LoadedLog:
    """One log as the stores have it."""

    head: Head
    rows: list[Row]
    producers: ProducerStates
    aborted: list[AbortedTransaction]
    content: list[Foreign]
    """All rows with their bytes, of an internal log: coordinators replay them at once. Empty for other logs."""


def load_logs(
    engine: Engine, row_bytes: RowBytes, slots: Collection[int] | None = None, only: int | None = None
) -> list[LoadedLog]:
    """Every log of these slots, or `only` one. Blocks. Raises StoreUnavailable and CorruptLogFile."""
    heads = [head for head in engine.heads(slots) if only in (None, head.log)]
    snapshots = {snapshot.log: snapshot for snapshot in engine.snapshots([head.log for head in heads], PRODUCERS)}
    loaded = []
    for head in heads:
        producers, known_to = ProducerStates(), 0
        snapshot = snapshots.get(head.log)
        if snapshot is not None:
            entries = decode_snapshot(snapshot.value, f"the producer snapshot of {head.name}")
            producers, known_to = ProducerStates(entries), snapshot.base
        internal = head.name.rpartition("-")[0] in INTERNAL_TOPICS
        content = foreign_rows(engine, row_bytes, head.log, head.start, head.next) if internal else []
        rows = [row for row, _ in content] if internal else list(_rows(engine, head))
        loaded.append(LoadedLog(head, rows, producers, _fold(head, rows, producers, known_to), content))
    return loaded


def _rows(engine: Engine, head: Head) -> Iterator[Row]:
    start = head.start
    while rows := engine.rows(head.log, start, head.next):
        yield from rows
        start = rows[-1].end


def _fold(head: Head, rows: Collection[Row], producers: ProducerStates, known_to: int) -> list[AbortedTransaction]:
    """Replay the rows from `known_to` on into `producers`; return the aborted transactions of all rows."""
    aborted: list[AbortedTransaction] = []
    for row in rows:
        if row.kind is RowKind.SEGMENT:
            aborted += (AbortedTransaction(*fields[1:]) for fields in TXN_ENTRY.iter_unpack(row.aborted))
            continue
        if row.base < known_to:
            raise CorruptLogFile(head.name, row.base, f"a run is below the producer snapshot at {known_to}")
        for data, header in heads_of(row, head.name):
            ended = replay(producers, head.name, header.base_offset, header, memoryview(data))
            if ended is not None:
                aborted.append(ended)
    return aborted


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
