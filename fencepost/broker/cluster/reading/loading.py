"""What a broker reads from the stores before it serves logs: their rows, and the state that their rows fold to."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from fencepost.broker.cluster.engine import Engine, Head, Row, RowKind, Snapshot, Span
from fencepost.broker.cluster.reading.folding import CLEANED, EPOCHS, LINGERING, METADATA, PRODUCERS, Index, LogState
from fencepost.broker.cluster.reading.row_index import slim
from fencepost.broker.cluster.reading.row_reading import (
    SPANS_AT_ONCE,
    Foreign,
    Ranges,
    all_rows,
    bytes_in_objects,
    with_bytes,
)
from fencepost.broker.log.producer_state import ProducerStates
from fencepost.broker.log.storage.txn_index import AbortedTransaction
from fencepost.protocol.topics import GROUP_TOPIC, METADATA_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC

INTERNAL_TOPICS = (METADATA_TOPIC, GROUP_TOPIC, TRANSACTION_TOPIC, SHARE_STATE_TOPIC)


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

    @property
    def is_consistent(self) -> bool:
        """Whether the producers are those at the end of the log: runs with heads follow the snapshots without a gap."""
        end = self.folded_to
        for row in self.rows:
            if row.end > self.folded_to:
                if row.kind is not RowKind.RUN or row.base != end:
                    return False
                end = row.end
        return end == self.head.next


def load_logs(
    engine: Engine,
    row_bytes: Ranges,
    slots: Collection[int] | None = None,
    wanted: Callable[[int], bool] = lambda log: True,
) -> list[LoadedLog]:
    """Every log of these slots, or of all, if it is `wanted`. Blocks. Raises StoreUnavailable and CorruptLogFile."""
    return load_heads(engine, row_bytes, [head for head in engine.heads(slots) if wanted(head.log)])


def load_heads(
    engine: Engine, row_bytes: Ranges, heads: Sequence[Head], whole: Collection[str] = INTERNAL_TOPICS
) -> list[LoadedLog]:
    """These logs, those of `whole` topics with their content. Blocks. Raises StoreUnavailable and CorruptLogFile.

    If another broker leads a log, its rows may be merged meanwhile: see `LoadedLog.is_consistent`.
    """
    snapshots: dict[int, list[Snapshot]] = {}
    for kind in (PRODUCERS, EPOCHS):
        for snapshot in engine.snapshots([head.log for head in heads], kind):
            snapshots.setdefault(snapshot.log, []).append(snapshot)
    cleaned = {one.log: one.base for one in engine.snapshots([head.log for head in heads], CLEANED)}
    files = {head.log: kept_files(engine, head.log) for head in heads if _topic_of(head) == METADATA_TOPIC}
    starts = {log: max((offset for offset, _, _ in found), default=0) for log, found in files.items()}
    spans = {head.log: Span(head.log, max(head.start, starts.get(head.log, 0)), head.next) for head in heads}
    content = _contents(engine, row_bytes, [spans[head.log] for head in heads if _topic_of(head) in whole])
    loaded = []
    for first in range(0, len(heads), SPANS_AT_ONCE):
        some = heads[first : first + SPANS_AT_ONCE]
        unread = [spans[head.log] for head in some if head.log not in content]
        rows = {span.log: found for span, found in zip(unread, all_rows(engine, unread), strict=True)}
        for head in some:
            state = LogState(head.name, snapshots.get(head.log, ()))
            folded_to, aborted, slimmed = state.end, list[AbortedTransaction](), list[Row]()
            mine = content.get(head.log, [])
            for row in rows.get(head.log, [row for row, _ in mine]):
                aborted += state.follow(row)
                slimmed.append(slim(row))
            offsets = folded_to, cleaned.get(head.log, 0)
            named = {name: data for _, name, data in files.get(head.log, ())}
            start = spans[head.log].start
            loaded.append(
                LoadedLog(head, start, slimmed, state.producers, state.epochs, *offsets, aborted, mine, named)
            )
    return loaded


def read_indexes(engine: Engine, heads: Sequence[Head]) -> dict[int, Index]:
    """All that the database has about these logs, but for the bytes of inline rows. Raises StoreUnavailable."""
    known = [head.log for head in heads]
    snapshots = {one.log: [one] for one in engine.snapshots(known, PRODUCERS)}
    cleaned = {one.log: one.base for one in engine.snapshots(known, CLEANED)}
    rows = all_rows(engine, [Span(head.log, head.start, head.next) for head in heads])
    return {
        head.log: Index(head, mine, snapshots.get(head.log, ()), cleaned.get(head.log, 0))
        for head, mine in zip(heads, rows, strict=True)
    }


def _topic_of(head: Head) -> str:
    return head.name.rpartition("-")[0]


def _contents(engine: Engine, row_bytes: Ranges, spans: Sequence[Span]) -> dict[int, list[Foreign]]:
    """The rows of these logs with their bytes. One object has rows of many logs, so all are read together."""
    found = all_rows(engine, spans, inline=True)
    data = bytes_in_objects(row_bytes, (row for rows in found for row in rows))
    return {span.log: with_bytes(rows, data) for span, rows in zip(spans, found, strict=True)}


def kept_files(engine: Engine, log: int) -> list[tuple[int, str, bytes]]:
    """The files that the database keeps beside the metadata log: offset, name, content."""
    found = []
    for kind in (METADATA, LINGERING):
        for snapshot in engine.snapshots([log], kind):
            name, _, data = snapshot.value.partition(b"\n")
            found.append((snapshot.base, name.decode(), data))
    return found
