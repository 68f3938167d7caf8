"""What a broker reads from the stores before it serves logs: their rows, and the state that their rows fold to."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from fencepost.broker.cluster.engine import Engine, Head, Row, Snapshot
from fencepost.broker.cluster.folding import CLEANED, EPOCHS, LINGERING, METADATA, PRODUCERS, LogState
from fencepost.broker.cluster.rounds import Foreign, RowBytes, foreign_rows
from fencepost.broker.cluster.row_index import slim
from fencepost.broker.log.producer_state import ProducerStates
from fencepost.broker.log.storage.txn_index import AbortedTransaction
from fencepost.protocol.topics import GROUP_TOPIC, METADATA_TOPIC, TRANSACTION_TOPIC

INTERNAL_TOPICS = (METADATA_TOPIC, GROUP_TOPIC, TRANSACTION_TOPIC)


@dataclass(slots=True)
class LoadedLog:
    """One log as the stores have it."""

    head: Head
    start: int
    """The first offset to read: a snapshot of the metadata stands for the records below it."""
    rows: list[Row]
    """Without what only a load needs."""
    producers: ProducerStates
    epochs: list[tuple[int, int]]
    """Leader epochs with their first offsets."""
    folded_to: int
    """The offset of the snapshots: the rows from there on are runs with heads."""
    cleaned_to: int
    """The first offset that no compaction has reached."""
    aborted: list[AbortedTransaction]
    content: list[Foreign]
    """All rows with their bytes, of an internal log: coordinators replay them at once. Empty for other logs."""
    files: dict[str, bytes]
    """Files beside the log that the database keeps, by name."""


def load_logs(
    engine: Engine, row_bytes: RowBytes, slots: Collection[int] | None = None, only: int | None = None
) -> list[LoadedLog]:
    """Every log of these slots, or `only` one. Blocks. Raises StoreUnavailable and CorruptLogFile."""
    heads = [head for head in engine.heads(slots) if only in (None, head.log)]
    snapshots: dict[int, list[Snapshot]] = {}
    for kind in (PRODUCERS, EPOCHS):
        for snapshot in engine.snapshots([head.log for head in heads], kind):
            snapshots.setdefault(snapshot.log, []).append(snapshot)
    cleaned = {one.log: one.base for one in engine.snapshots([head.log for head in heads], CLEANED)}
    loaded = []
    for head in heads:
        state = LogState(head.name, snapshots.get(head.log, ()))
        folded_to, aborted = state.end, list[AbortedTransaction]()
        topic, start = head.name.rpartition("-")[0], head.start
        files = kept_files(engine, head.log) if topic == METADATA_TOPIC else []
        start = max([start, *(offset for offset, _, _ in files)])
        internal = topic in INTERNAL_TOPICS
        content = foreign_rows(engine, row_bytes, head.log, start, head.next) if internal else []
        rows = []
        for row in (row for row, _ in content) if internal else rows_of(engine, head.log, start, head.next):
            aborted += state.follow(row)
            rows.append(slim(row))
        offsets = folded_to, cleaned.get(head.log, 0)
        named = {name: data for _, name, data in files}
        loaded.append(LoadedLog(head, start, rows, state.producers, state.epochs, *offsets, aborted, content, named))
    return loaded


def kept_files(engine: Engine, log: int) -> list[tuple[int, str, bytes]]:
    """The files that the database keeps beside the metadata log: offset, name, content."""
    found = []
    for kind in (METADATA, LINGERING):
        for snapshot in engine.snapshots([log], kind):
            name, _, data = snapshot.value.partition(b"\n")
            found.append((snapshot.base, name.decode(), data))
    return found


def rows_of(engine: Engine, log: int, start: int, end: int, inline: bool = False) -> Iterator[Row]:
    """All rows of a log in [start, end). Blocks. Raises StoreUnavailable."""
    while rows := engine.rows(log, start, end, inline):
        yield from rows
        start = rows[-1].end
