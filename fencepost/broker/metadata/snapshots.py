"""Snapshots of the metadata: taken periodically and loaded first at a start; the log before them can be deleted.

A snapshot is a file with Kafka's name and format in the directory of the metadata log. The broker writes it under a
temporary name, syncs it and renames it. The two newest are kept, and at least the part of the log after the older one,
so that a start survives the loss of the newest.
"""

import logging
from collections.abc import Callable, Collection, Iterator

import trio

from fencepost.broker.config.broker_config import BrokerConfig
from fencepost.broker.log.durability.flusher import LogFlusher
from fencepost.broker.log.durability.sync_threads import FlushThreads
from fencepost.broker.log.durability.upkeep import in_threads, sync_all, syncing
from fencepost.broker.log.partition import PartitionLog
from fencepost.broker.log.recovery.snapshots import SNAPSHOT_SUFFIX
from fencepost.broker.log.storage.segment import LOG_SUFFIX, SEGMENT_SUFFIXES, file_name, offset_in_name
from fencepost.broker.log.storage.store import Store, SyncTask
from fencepost.broker.log.trimming import deleting_records
from fencepost.coordinator.metadata.delta import MetadataCorrupt
from fencepost.coordinator.metadata.image import MetadataImage
from fencepost.coordinator.metadata.service import MetadataService
from fencepost.coordinator.metadata.snapshot import Snapshot, SnapshotId, read_snapshot, snapshot_id, snapshot_parts
from fencepost.coordinator.ports import Clock
from fencepost.protocol.batch_header import CorruptBatch, check_crc, iter_headers

KEPT = 2
"""How many snapshots are kept."""
LINGERING = "deleted-topics"
"""The file with the ids of deleted topics that still have logs: a snapshot holds nothing about deleted topics."""
IDS_AT_ONCE = 1000
"""The number of ids of deleted topics at which the broker first drops those that are no longer needed."""
ROLL_BYTES = 1 << 20
"""A snapshot closes the active segment if it has this size, so that the segment can be deleted later."""

logger = logging.getLogger(__name__)


class MetadataSnapshots:
    """The snapshots in the directory of `log`; the `Snapshots` port of a metadata service.

    `lingering` returns the ids of the deleted topics that still have logs in the data directory.
    """

    def __init__(
        self,
        log: PartitionLog,
        flusher: LogFlusher,
        threads: FlushThreads,
        clock: Clock,
        config: Callable[[], BrokerConfig],
        lingering: Callable[[], Collection[bytes]],
        keep: Callable[[str, int, str, bytes], Collection[SyncTask]],
    ) -> None:
        """`keep` is `Place.keep_metadata`."""
        self._keep = keep
        self._log = log
        self._flusher = flusher
        self._threads = threads
        self._clock = clock
        self._config = config
        self._lingering = lingering
        self._lock = trio.Lock()
        self._offset = 0
        self._bytes = 0
        self._seconds = clock.monotonic()
        self._ids_max = IDS_AT_ONCE

    def newest(self) -> MetadataImage | None:
        """The newest readable snapshot that the log continues from; None if there is none.

        Raises MetadataCorrupt if the log does not begin at offset 0 and no snapshot covers the missing part.
        """
        start, end = self._log.log_start_offset, self._log.log_end_offset
        for found in reversed(snapshots_in(self._log.store)):
            if not start <= found.offset <= end:
                continue
            try:
                image = load_snapshot(self._log.store, found).image
            except MetadataCorrupt as error:
                logger.error("a metadata snapshot is damaged; the broker tries an older one: %s", error)
                continue
            self._offset = image.offset
            return image
        if start > 0:
            raise MetadataCorrupt(start, f"{self._log.store.place} has no snapshot of the records before")
        return None

    def deleted_topic_ids(self) -> set[bytes]:
        """The ids of the deleted topics that still had logs when the last snapshot was taken."""
        text = (self._log.store.load(LINGERING) or b"").decode("ascii", "replace")
        try:
            return {bytes.fromhex(line) for line in text.split()}
        except ValueError:
            logger.error("%s/%s is damaged and ignored", self._log.store.place, LINGERING)
            return set()

    async def write(self, image: MetadataImage) -> None:
        """Write a durable snapshot, and delete the old snapshots and segments that it replaces. Raises OSError.

        Every record below the image's offset must be durable and decided, and a batch must end there.
        """
        async with self._lock:
            if image.offset <= self._offset:
                return
            with trio.CancelScope(shield=True):
                await self._write(image)

    async def _write(self, image: MetadataImage) -> None:
        store, began = self._log.store, self._clock.monotonic()
        await self._flusher.flush(self._log)  # also with durability=os: no snapshot may be ahead of its log
        lingering = "".join(f"{topic_id.hex()}\n" for topic_id in sorted(self._lingering())).encode()
        if lingering != (store.load(LINGERING) or b""):
            await self._store(LINGERING, image.offset, LINGERING, lingering)
        data = bytearray()
        for part in snapshot_parts(image, self._clock.now_ms(), self._log.leader_epoch):
            data += part
            await trio.lowlevel.checkpoint()
        name = SnapshotId(image.offset, self._log.leader_epoch).file_name
        await self._store("metadata", image.offset, name, bytes(data))
        self._offset = image.offset
        logger.info(
            "metadata snapshot written offset=%d bytes=%d seconds=%.2f",
            image.offset,
            len(data),
            self._clock.monotonic() - began,
        )
        await self._clean()

    async def _store(self, kind: str, offset: int, name: str, data: bytes) -> None:
        elsewhere = self._keep(kind, offset, name, data)
        await in_threads(syncing([*elsewhere, self._log.store.replacement(name, data)]), self._threads)

    async def _clean(self) -> None:
        """Delete old snapshots, and the log's oldest segments above the size bound that both kept snapshots cover."""
        found = snapshots_in(self._log.store)
        for old in found[:-KEPT]:
            self._log.later(self._log.store.removals([old.file_name]))
        facts = self._log.segments.facts()
        bound = self._config().metadata_max_retention_bytes
        if facts[-1].size_bytes >= (ROLL_BYTES if bound < 0 else min(ROLL_BYTES, max(bound, 1))):
            self._log.roll(self._clock.now_ms())
        if len(found) < KEPT or bound < 0:
            return
        excess, boundary = self._log.segments.size_bytes - bound, 0
        for fact in self._log.segments.facts()[:-1]:
            if excess <= 0 or fact.next_offset > found[-KEPT].offset:
                break
            boundary, excess = fact.next_offset, excess - fact.size_bytes
        if boundary > self._log.log_start_offset:
            await in_threads(deleting_records(self._log, boundary), self._threads)

    async def take_if_due(self, metadata: MetadataService) -> None:
        """Take a snapshot if enough bytes or time have passed since the last one; the broker calls it periodically."""
        self._forget_deleted(metadata)
        config, seconds = self._config(), self._clock.monotonic()
        fresh_bytes = metadata.journal.bytes_read - self._bytes
        interval = config.metadata_log_max_snapshot_interval_ms / 1000
        late = 0 < interval <= seconds - self._seconds
        if metadata.image.offset == self._offset or not (
            late or fresh_bytes >= config.metadata_log_max_record_bytes_between_snapshots
        ):
            return
        try:
            if await metadata.take_snapshot():
                self._bytes += fresh_bytes
                self._seconds = seconds
        except OSError as error:
            logger.error("cannot write a metadata snapshot; the metadata log grows until the next try: %s", error)

    def _forget_deleted(self, metadata: MetadataService) -> None:
        """Drop the ids of deleted topics without logs, each time their number has doubled.

        A start reads the ids from the log after the snapshot and from LINGERING: no others are needed.
        """
        if len(metadata.deleted_topic_ids) >= self._ids_max:
            metadata.forget_deleted(self._lingering())
            self._ids_max = max(IDS_AT_ONCE, 2 * len(metadata.deleted_topic_ids))


def snapshots_in(store: Store) -> list[SnapshotId]:
    return sorted(found for name in store.sizes() if (found := snapshot_id(name)) is not None)


def load_snapshot(store: Store, found: SnapshotId) -> Snapshot:
    """Read a snapshot. Raises MetadataCorrupt and OSError."""
    data = store.load(found.file_name) or b""
    return read_snapshot(data, found.offset, f"{store.place}/{found.file_name}")


def begin_behind_snapshot(store: Store) -> int | None:
    """After damage to the log: if a snapshot covers more than the batches before the damage, restart the log after it.

    Deletes all segments then. Returns the offset at which the log begins, or None if no snapshot covers more. The log
    must not be open, and a copy of it must exist. Raises OSError.
    """
    good = _end_of_good_batches(store)
    for found in reversed(snapshots_in(store)):
        if found.offset <= good:
            return None
        try:
            load_snapshot(store, found)
        except MetadataCorrupt as error:
            logger.error("a metadata snapshot is damaged as well and is deleted: %s", error)
            store.remove(found.file_name)  # it ends beyond the end that the log has after truncation
            continue
        for name in list(store.sizes()):
            if any(offset_in_name(name, suffix) is not None for suffix in (*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX)):
                store.remove(name)
        store.open(file_name(found.offset, LOG_SUFFIX)).create()
        sync_all(store.entry_targets())
        return found.offset
    return None


def _end_of_good_batches(store: Store) -> int:
    """The offset up to which the log's batches are contiguous and undamaged."""
    end: int | None = None
    for base, data in _segments(store):
        try:
            for position, header in iter_headers(data):
                if (end is not None and header.base_offset != end) or not check_crc(data, position, header):
                    return end or base
                end = header.next_offset
        except CorruptBatch:
            return base if end is None else end
    return end or 0


def _segments(store: Store) -> Iterator[tuple[int, bytes]]:
    for name in sorted(store.sizes()):
        base = offset_in_name(name, LOG_SUFFIX)
        if base is not None:
            yield base, store.load(name) or b""
