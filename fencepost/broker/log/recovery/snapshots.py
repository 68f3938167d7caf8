"""Producer snapshots: Kafka's `.snapshot` bytes, version 1, followed by the duplicate windows (row P9).

Kafka stores one batch per producer over a restart. Here the batches before the last one follow Kafka's entries in an
extra section; also the last one, if a marker changed its producer's timestamp. The checksum covers the section. Kafka's
reader ignores it, because it reads only the counted entries. A snapshot without such batches is byte for byte Kafka's.
"""

import logging
from collections.abc import Collection, Iterator, Mapping
from struct import Struct
from struct import error as StructError

import crc32c

from fencepost.broker.log.producer_entries import BatchMetadata, ProducerEntry
from fencepost.broker.log.producer_state import ProducerStates
from fencepost.broker.log.storage.segment import file_name, offset_in_name
from fencepost.broker.log.storage.store import CorruptLogFile, Store

SNAPSHOT_SUFFIX = ".snapshot"

_VERSION = 1
_HEAD = Struct(">hI")
_COUNT = Struct(">i")
_ENTRY = Struct(">qhiqiqiq")
"""Producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, transaction's start."""

_ENTRIES_PER_STEP = 1000

_WINDOWS_MAGIC = b"fpw1"
_WINDOW_HEAD = Struct(">qB")
_WINDOW_BATCH = Struct(">iqiq")
"""Last sequence, last offset, offset delta, timestamp: one earlier batch of a producer, oldest first."""

logger = logging.getLogger(__name__)


def encode_snapshot(entries: Collection[ProducerEntry]) -> bytes:
    """The content of the file for these producers."""
    body = bytearray(_COUNT.pack(len(entries)))
    windows = bytearray()
    count = 0
    for entry in entries:
        last = entry.batches[-1] if entry.batches else BatchMetadata(-1, -1, 0, -1)
        body += _ENTRY.pack(
            entry.producer_id,
            entry.epoch,
            last.last_sequence,
            last.last_offset,
            last.offset_delta,
            entry.last_timestamp_ms,
            entry.coordinator_epoch,
            entry.txn_first_offset,
        )
        # Kafka's entry has one timestamp for the producer and its last batch. After a marker the two differ.
        whole = last.timestamp_ms != entry.last_timestamp_ms
        earlier = entry.batches if whole else entry.batches[:-1]
        if earlier:
            count += 1
            windows += _WINDOW_HEAD.pack(entry.producer_id, len(earlier))
            for batch in earlier:
                windows += _WINDOW_BATCH.pack(*batch)
    if count:
        body += _WINDOWS_MAGIC + _COUNT.pack(count) + windows
    return _HEAD.pack(_VERSION, crc32c.crc32c(body)) + bytes(body)


def decode_snapshot(data: bytes, place: str) -> list[ProducerEntry]:
    """The producers in a snapshot. Raises CorruptLogFile with `place` for a bad checksum, version or length."""
    if len(data) < _HEAD.size + _COUNT.size:
        raise CorruptLogFile(place, len(data), "too short for a producer snapshot")
    version, crc = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise CorruptLogFile(place, 0, f"producer snapshot version {version}, only {_VERSION} is known")
    if crc32c.crc32c(memoryview(data)[_HEAD.size :]) != crc:
        raise CorruptLogFile(place, 2, "the checksum does not match")
    try:
        return _entries(data, place)
    except StructError as error:
        raise CorruptLogFile(place, len(data), f"entries end early: {error}") from error


def open_in_snapshot(data: bytes, place: str) -> Iterator[list[int]]:
    """The ids of the producers with an open transaction, in parts of a thousand entries. Raises CorruptLogFile."""
    head = _HEAD.size + _COUNT.size
    if len(data) < head or crc32c.crc32c(memoryview(data)[_HEAD.size :]) != _HEAD.unpack_from(data)[1]:
        raise CorruptLogFile(place, 0, "is no producer snapshot, or damaged")
    (count,) = _COUNT.unpack_from(data, _HEAD.size)
    for first in range(0, count, _ENTRIES_PER_STEP):
        last = min(count, first + _ENTRIES_PER_STEP)
        part = memoryview(data)[head + first * _ENTRY.size : head + last * _ENTRY.size]
        yield [entry[0] for entry in _ENTRY.iter_unpack(part) if entry[7] >= 0]


def _entries(data: bytes, place: str) -> list[ProducerEntry]:
    (count,) = _COUNT.unpack_from(data, _HEAD.size)
    at = _HEAD.size + _COUNT.size
    if count < 0 or at + count * _ENTRY.size > len(data):
        raise CorruptLogFile(place, _HEAD.size, f"{count} entries do not fit into {len(data)} bytes")
    earlier = _windows(data, at + count * _ENTRY.size, place)
    entries = []
    for number in range(count):
        producer_id, epoch, sequence, offset, delta, timestamp_ms, coordinator_epoch, first_offset = _ENTRY.unpack_from(
            data, at + number * _ENTRY.size
        )
        batches = earlier.get(producer_id, ())
        if offset >= 0 and not (batches and batches[-1].last_offset == offset):
            batches = (*batches, BatchMetadata(sequence, offset, delta, timestamp_ms))
        entries.append(ProducerEntry(producer_id, epoch, coordinator_epoch, timestamp_ms, first_offset, batches))
    return entries


def _windows(data: bytes, at: int, place: str) -> dict[int, tuple[BatchMetadata, ...]]:
    if data[at : at + len(_WINDOWS_MAGIC)] != _WINDOWS_MAGIC:
        return {}  # Kafka's own file
    at += len(_WINDOWS_MAGIC)
    (count,) = _COUNT.unpack_from(data, at)
    at += _COUNT.size
    if count < 0 or count * _WINDOW_HEAD.size > len(data) - at:
        raise CorruptLogFile(place, at, f"{count} duplicate windows do not fit")
    windows = {}
    for _ in range(count):
        producer_id, batches = _WINDOW_HEAD.unpack_from(data, at)
        at += _WINDOW_HEAD.size
        window = []
        for _ in range(batches):
            window.append(BatchMetadata(*_WINDOW_BATCH.unpack_from(data, at)))
            at += _WINDOW_BATCH.size
        windows[producer_id] = tuple(window)
    return windows


def snapshot_offsets(names: Mapping[str, int]) -> list[int]:
    return sorted(offset for name in names if (offset := offset_in_name(name, SNAPSHOT_SUFFIX)) is not None)


def starting_points(store: Store, names: Mapping[str, int], limit: int) -> Iterator[tuple[int, ProducerStates]]:
    """Offsets to replay from, with the state there: the snapshots up to `limit`, newest first, then 0.

    A damaged snapshot is logged and deleted.
    """
    for offset in reversed(snapshot_offsets(names)):
        if offset > limit:
            continue
        name = file_name(offset, SNAPSHOT_SUFFIX)
        data = store.load(name)
        if data is None:
            continue
        try:
            yield offset, ProducerStates(decode_snapshot(data, f"{store.place}/{name}"))
        except CorruptLogFile as error:
            logger.warning("damaged producer snapshot deleted, recovery uses an older one and the batches: %s", error)
            store.remove(name)
    yield 0, ProducerStates()
