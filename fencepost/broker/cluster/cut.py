"""What the stores of a cluster hold at one instant, for readers that ask no broker.

All of a cut is read in one transaction of the database, so it has every commit in all logs, or in none: a transaction
over many partitions is in it whole. The bounds are those of brokers: all rows are durable, so a log ends at its high
watermark. This module imports psycopg.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from fencepost.broker.cluster.engine import Head, Row, Span, log_id, slot_of
from fencepost.broker.cluster.folding import PRODUCERS, LogState
from fencepost.broker.cluster.loading import load_logs
from fencepost.broker.cluster.objects import place_name
from fencepost.broker.cluster.postgres import PostgresEngine
from fencepost.broker.cluster.rounds import RowBytes
from fencepost.broker.cluster.row_reading import all_rows, bytes_in_objects
from fencepost.broker.cluster.stamping import stamp
from fencepost.broker.log.producer_state import OpenTransaction
from fencepost.broker.log.storage.txn_index import AbortedTransaction
from fencepost.broker.metadata.log import METADATA_PARTITION, METADATA_TOPIC_ID
from fencepost.coordinator.metadata.image import EMPTY_IMAGE, MetadataImage, TopicImage
from fencepost.coordinator.metadata.snapshot import read_snapshot, snapshot_id
from fencepost.coordinator.metadata.transactions import MetadataLoader
from fencepost.protocol.batch_header import BatchHeader, iter_headers
from fencepost.protocol.columns import iter_columns
from fencepost.protocol.metadata_records import decode_metadata_records
from fencepost.protocol.records import decode_records
from fencepost.protocol.topics import TopicPartition

_METADATA_LOG = log_id(METADATA_TOPIC_ID, METADATA_PARTITION.partition)
_NO_FIELDS: frozenset[str] = frozenset()


class Folded(NamedTuple):
    """What a partition's rows add up to."""

    stable: int
    """The last stable offset."""
    open: OpenTransaction | None
    """The oldest open transaction."""
    aborted: list[AbortedTransaction]


class Cut:
    """The stores at one instant; see `cut_of`. All methods block, and raise StoreUnavailable and CorruptLogFile."""

    def __init__(self, engine: PostgresEngine, row_bytes: RowBytes, metadata: "MetadataView") -> None:
        self._engine = engine
        self._row_bytes = row_bytes
        self._heads = {head.log: head for head in engine.heads()}
        self.topics = metadata.topics(engine, row_bytes, self._heads.get(_METADATA_LOG))
        """Every topic by its name."""

    def log_of(self, tp: TopicPartition) -> int | None:
        """The id of a partition's log; None if the partition does not exist."""
        topic = self.topics.get(tp.topic)
        if topic is None or not 0 <= tp.partition < topic.partitions:
            return None
        return log_id(topic.topic_id, tp.partition)

    def bounds(self, log: int) -> tuple[int, int]:
        """The log start offset and the high watermark. A log has no row before its first record."""
        head = self._heads.get(log)
        return (0, 0) if head is None else (head.start, head.next)

    def fold(self, logs: Collection[int]) -> dict[int, Folded]:
        """The last stable offsets and the transactions of these logs."""
        heads = [self._heads[log] for log in logs if log in self._heads]
        snapshots = {one.log: [one] for one in self._engine.snapshots([head.log for head in heads], PRODUCERS)}
        found = {log: Folded(0, None, []) for log in logs}
        rows = all_rows(self._engine, [Span(head.log, head.start, head.next) for head in heads])
        for head, mine in zip(heads, rows, strict=True):
            state, aborted = LogState(head.name, snapshots.get(head.log, ())), list[AbortedTransaction]()
            for row in mine:
                aborted += state.follow(row)
            oldest = next(state.producers.open_transactions(), None)
            stable = head.next if oldest is None else max(oldest.first_offset, head.start)
            found[head.log] = Folded(stable, oldest, aborted)
        return found

    def first_at(self, log: int, timestamp_ms: int, upper_offset: int) -> int | None:
        """The offset of the first record below `upper_offset` with at least that timestamp (row I6)."""
        start, _ = self.bounds(log)
        for row in _rows(self._engine, log, start, upper_offset):
            if row.max_timestamp_ms < timestamp_ms:
                continue
            data, batches = stamped_bytes(row, self._row_bytes)
            late = [(at, header) for at, header in batches if header.max_timestamp >= timestamp_ms]
            for columns in iter_columns(data, late, first_offset=start, fields=_NO_FIELDS):
                for offset, time_ms in zip(columns.offset.tolist(), columns.timestamp_ms.tolist(), strict=True):
                    if time_ms >= timestamp_ms:
                        return offset if offset < upper_offset else None
        return None


def _rows(engine: PostgresEngine, log: int, start: int, end: int) -> Iterator[Row]:
    while rows := engine.rows(log, start, end, inline=True, limit=100):
        yield from rows
        start = rows[-1].end


@contextmanager
def cut_of(engine: PostgresEngine, row_bytes: RowBytes, metadata: "MetadataView") -> Iterator[Cut]:
    """The stores at one instant, as long as the block runs: the database keeps old versions of its rows meanwhile."""
    with engine.at_one_instant():
        yield Cut(engine, row_bytes, metadata)


def stamped_bytes(row: Row, row_bytes: RowBytes) -> tuple[bytearray, list[tuple[int, BatchHeader]]]:
    """The batches of a row as they are in the log, with the position and header of each.

    Raises StoreUnavailable and CorruptLogFile.
    """
    data = bytearray(row.inline if row.inline is not None else bytes_in_objects(row_bytes, [row])[row.placement])
    stamp(row, data, place_name(row.placement.object_id))
    return data, list(iter_headers(data))


class MetadataView:
    """The topics of a cluster. It reads the metadata again only after it changed."""

    def __init__(self) -> None:
        self._read_to = -1
        self._topics: Mapping[str, TopicImage] = {}

    def topics(self, engine: PostgresEngine, row_bytes: RowBytes, head: Head | None) -> Mapping[str, TopicImage]:
        """The topics, by name. A change that is not whole yet (KIP-868) does not count."""
        if head is not None and head.next != self._read_to:
            self._topics = _image(engine, row_bytes).topics_by_name
            self._read_to = head.next
        return self._topics


def _image(engine: PostgresEngine, row_bytes: RowBytes) -> MetadataImage:
    (loaded,) = load_logs(engine, row_bytes, [slot_of(_METADATA_LOG)], lambda log: log == _METADATA_LOG)
    image = EMPTY_IMAGE
    names = [(found.offset, name) for name in loaded.files if (found := snapshot_id(name)) is not None]
    if names:
        offset, name = max(names)
        image = read_snapshot(loaded.files[name], offset, name).image
    loader = MetadataLoader(image)
    for row, content in loaded.content:
        data = bytearray(content)
        stamp(row, data, place_name(row.placement.object_id))
        for at, header in iter_headers(data):
            if header.base_offset < image.offset:
                continue
            if header.is_control:
                loader.pass_over(header.base_offset, header.next_offset)
                continue
            values = [record.value or b"" for record in decode_records(data, at, header)]
            loader.load_batch(header.base_offset, [*decode_metadata_records(values)])
    return loader.image
