"""What the stores of a cluster hold at one instant, for readers that ask no broker.

All of a cut is read in one transaction of the database, so it has every commit in all logs, or in none: a transaction
over many partitions is in it whole. The bounds are those of brokers: all rows are durable, so a log ends at its high
watermark. This module imports psycopg.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from fencepost.broker.cluster.commit.rounds import RowBytes
from fencepost.broker.cluster.database.postgres import PostgresEngine
from fencepost.broker.cluster.engine import Head, Row, log_id, slot_of
from fencepost.broker.cluster.objects.object_store import place_name
from fencepost.broker.cluster.reading.folding import Folded, Index, heads_of
from fencepost.broker.cluster.reading.loading import load_logs, read_indexes
from fencepost.broker.cluster.reading.row_reading import bytes_in_objects, foreign_rows
from fencepost.broker.cluster.reading.stamping import stamp
from fencepost.broker.cluster.verify.whole_ends import Batches, whole_ends, with_commits
from fencepost.broker.log.producer_state import ProducerStates
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


class Cut:
    """The stores at one instant; see `cut_of`. All methods block, and raise StoreUnavailable and CorruptLogFile."""

    def __init__(self, engine: PostgresEngine, row_bytes: RowBytes, metadata: "MetadataView") -> None:
        self._engine = engine
        self._row_bytes = row_bytes
        self._heads = {head.log: head for head in engine.heads()}
        metadata.follow(engine, row_bytes, self._heads.get(_METADATA_LOG))
        self._metadata = metadata
        self.topics: Mapping[str, TopicImage] = metadata.image.topics_by_name

    def log_of(self, tp: TopicPartition) -> int | None:
        """The id of a partition's log; None if the partition does not exist."""
        topic = self.topics.get(tp.topic)
        if topic is None or not 0 <= tp.partition < topic.partitions:
            return None
        return log_id(topic.topic_id, tp.partition)

    def is_compacted(self, topic: str) -> bool:
        """Whether the metadata give the topic a cleanup.policy with `compact`. Files of settings are not read."""
        image = self._metadata.image
        default = image.broker_config("").get("log.cleanup.policy", "delete")
        return "compact" in image.topic_config(topic).get("cleanup.policy", default)

    def bounds(self, log: int) -> tuple[int, int]:
        """The log start offset and the high watermark. A log has no row before its first record."""
        head = self._heads.get(log)
        return (0, 0) if head is None else (head.start, head.next)

    def index(self, logs: Collection[int]) -> dict[int, Index]:
        return read_indexes(self._engine, [self._heads[log] for log in logs if log in self._heads])

    @property
    def image(self) -> MetadataImage:
        return self._metadata.image

    def fold(self, logs: Collection[int]) -> dict[int, Folded]:
        """The last stable offsets and the transactions of these logs."""
        nothing = dict.fromkeys(logs, Folded(0, None, [], ProducerStates()))
        return {**nothing, **{log: index.fold() for log, index in self.index(logs).items()}}

    def stable_ends(self, logs: Collection[int]) -> dict[int, int]:
        """The last stable offsets of these logs, lowered so that no committed transaction is in some of them only."""
        indexes = self.index(logs)
        stable = {**dict.fromkeys(logs, 0), **{log: index.fold().stable for log, index in indexes.items()}}
        return whole_ends(stable, indexes, self._batches_of)

    def content(self, log: int) -> Iterator[tuple[bytearray, list[tuple[int, BatchHeader]]]]:
        """All batches of a log, row by row, with the position and header of each."""
        for row, data in foreign_rows(self._engine, self._row_bytes, log, *self.bounds(log)):
            yield _stamped(row, bytearray(data))

    def _batches_of(self, head: Head, row: Row) -> Batches:
        if row.heads is not None:
            return with_commits((data, 0, header) for data, header in heads_of(row, head.name))
        (whole,) = self._engine.rows(head.log, row.base, row.end, inline=True, limit=1)
        stamped, batches = stamped_bytes(whole, self._row_bytes)
        return with_commits((stamped, at, header) for at, header in batches)

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
    data = row.inline if row.inline is not None else bytes_in_objects(row_bytes, [row])[row.placement]
    return _stamped(row, bytearray(data))


def _stamped(row: Row, data: bytearray) -> tuple[bytearray, list[tuple[int, BatchHeader]]]:
    stamp(row, data, place_name(row.placement.object_id))
    return data, list(iter_headers(data))


class MetadataView:
    """The metadata of a cluster. It reads them again only after they changed."""

    def __init__(self) -> None:
        self._read_to = -1
        self.image: MetadataImage = EMPTY_IMAGE
        """A change that is not whole yet (KIP-868) is not in it."""

    def follow(self, engine: PostgresEngine, row_bytes: RowBytes, head: Head | None) -> None:
        """Read the metadata whose log has these bounds; None: there are none yet."""
        if head is not None and head.next != self._read_to:
            self.image = _image(engine, row_bytes)
            self._read_to = head.next


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
