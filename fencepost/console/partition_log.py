"""A piece of a partition's log as batches: what each is, which producer wrote it, and how its transaction ended."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from fencepost.client.admin.fetching import Fetched, fetch
from fencepost.client.admin.lag import Reach, reaches
from fencepost.client.admin.parts import AdminParts
from fencepost.client.errors import KafkaError
from fencepost.protocol.batch_header import BatchHeader, CorruptBatch, iter_headers
from fencepost.protocol.control_records import ControlType, control_type
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import IsolationLevel, TopicPartition

WINDOW_BYTES: Final = 1 << 20
"""A window reads at most about this many bytes of the log."""
WINDOW_BATCHES: Final = 300
WINDOW_OFFSETS: Final = 4000
"""How far before the end a window begins at first."""

PLAIN, COMMITTED, ABORTED, OPEN, ENDED = "plain", "committed", "aborted", "open", "ended"
"""The outcomes of a batch. PLAIN: not in a transaction. ENDED: its marker is beyond the window."""


class Batch(NamedTuple):
    """One batch. `marker` is COMMIT, ABORT or another control record's name, None for data."""

    header: BatchHeader
    marker: str | None
    outcome: str

    def as_json(self) -> dict[str, Any]:
        """What the picture draws, and the header's fields for its panel."""
        header = self.header
        return {
            "base": header.base_offset,
            "last": header.last_offset,
            "size": header.size_bytes,
            "marker": self.marker,
            "outcome": self.outcome,
            # A producer id may be larger than the numbers of JavaScript are exact.
            "producer": None if header.producer_id < 0 else str(header.producer_id),
            "fields": {
                "base offset": str(header.base_offset),
                "last offset": str(header.last_offset),
                "records": str(header.record_count),
                "size": f"{header.size_bytes} bytes",
                "compression": header.compression.name.lower(),
                "producer id": str(header.producer_id),
                "producer epoch": str(header.producer_epoch),
                "first sequence": str(header.base_sequence),
                "last sequence": str(header.last_sequence),
                "transactional": "yes" if header.is_transactional else "no",
                "leader epoch": str(header.partition_leader_epoch),
                "timestamp type": "LogAppendTime" if header.timestamp_type else "CreateTime",
                "base timestamp": str(header.base_timestamp),
                "max timestamp": str(header.max_timestamp),
                "CRC-32C": f"{header.crc & 0xFFFFFFFF:08x}",
            },
        }


class Window(NamedTuple):
    """Batches from `first` up to `next_offset`, and where the log begins and ends."""

    reach: Reach
    first: int
    next_offset: int
    batches: Sequence[Batch]

    def as_json(self) -> dict[str, Any]:
        return {
            "start": self.reach.start,
            "stable": self.reach.stable,
            "high": self.reach.high,
            "first": self.first,
            "next": self.next_offset,
            "batches": [batch.as_json() for batch in self.batches],
        }


async def window(admin: AdminParts, partition: TopicPartition, at: int | None) -> Window:
    """The batches from offset `at` on, or (None) the last batches of the log. Raises KafkaError."""
    reach = (await reaches(admin, [partition]))[partition]
    if at is not None:
        first = min(max(at, reach.start), reach.high)
        read = await read_headers(admin, partition, first, reach)
        return await _window(admin, partition, reach, first, read[:WINDOW_BATCHES])
    distance = WINDOW_OFFSETS
    while True:  # nearer to the end, until the bytes that one window may read reach it
        first = max(reach.start, reach.high - distance)
        read = await read_headers(admin, partition, first, reach)
        if distance == 1 or not read or read[-1][0].next_offset >= reach.high:
            break
        distance //= 4 if distance >= 4 else distance
    last = read[-WINDOW_BATCHES:]
    first = last[0][0].base_offset if last else first
    return await _window(admin, partition, reach, first, last)


async def _window(
    admin: AdminParts,
    partition: TopicPartition,
    reach: Reach,
    first: int,
    read: Sequence[tuple[BatchHeader, str | None]],
) -> Window:
    """The window of these batches. Raises KafkaError."""
    next_offset = read[-1][0].next_offset if read else first
    undecided = without_marker(read)
    aborted: Iterable[tuple[int, int]] = ()
    open_from: Mapping[int, int] | None = {}
    if any(header.base_offset < reach.stable for header in undecided):
        aborted = (await _fetch(admin, partition, first, IsolationLevel.READ_COMMITTED)).aborted
    if any(header.base_offset >= reach.stable for header in undecided):
        open_from = await _open_from(admin, partition)
    return Window(reach, first, next_offset, with_outcomes(read, reach.stable, aborted, open_from))


async def _open_from(admin: AdminParts, partition: TopicPartition) -> Mapping[int, int] | None:
    """The first offset of each producer's open transaction; None before Kafka 2.8. Raises KafkaError."""
    try:
        producers = (await admin.transactions.describe_producers(partition))[partition]
    except KafkaError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        return None
    return {
        one.producer_id: one.transaction_start_offset for one in producers if one.transaction_start_offset is not None
    }


async def read_headers(
    admin: AdminParts, partition: TopicPartition, first: int, reach: Reach
) -> list[tuple[BatchHeader, str | None]]:
    """The headers from `first` on, each with the name of its marker. Raises KafkaError."""
    if first >= reach.high:
        return []
    return headers_of((await _fetch(admin, partition, first, IsolationLevel.READ_UNCOMMITTED)).records, partition)


async def _fetch(admin: AdminParts, partition: TopicPartition, first: int, isolation: IsolationLevel) -> Fetched:
    return await fetch(admin, partition, first, WINDOW_BYTES, isolation=isolation)


def headers_of(records: bytes, partition: TopicPartition) -> list[tuple[BatchHeader, str | None]]:
    """The header of each whole batch with the name of its control record (None: data). Raises KafkaError."""
    try:
        return [(header, _marker(records, position, header)) for position, header in iter_headers(records)]
    except CorruptBatch as error:
        raise KafkaError(f"{partition}: {error}", code=ErrorCode.CORRUPT_MESSAGE, api="Fetch") from error


def _marker(records: bytes, position: int, header: BatchHeader) -> str | None:
    if not header.is_control:
        return None
    kind = control_type(records, position, header) if header.record_count else None
    return "control" if kind is None else kind.name


def ends_transaction(marker: str | None) -> bool:
    return marker in (ControlType.COMMIT.name, ControlType.ABORT.name)


def without_marker(read: Sequence[tuple[BatchHeader, str | None]]) -> list[BatchHeader]:
    """The transactional batches whose marker is not among these batches."""
    ended: set[int] = set()
    found = []
    for header, marker in reversed(read):
        if ends_transaction(marker):
            ended.add(header.producer_id)
        elif marker is None and header.is_transactional and header.producer_id not in ended:
            found.append(header)
    return found


def with_outcomes(
    read: Sequence[tuple[BatchHeader, str | None]],
    stable: int,
    aborted: Iterable[tuple[int, int]] = (),
    open_from: Mapping[int, int] | None = None,
) -> list[Batch]:
    """Decide how each batch's transaction ended.

    The first marker of a producer behind a batch decides. Without one, `aborted` decides below the last stable offset
    `stable`: producer ids with the first offsets of their aborted transactions (row I3). From there on, `open_from`
    has the producers with an open transaction and its first offset (None: all these transactions are open).
    """
    aborted = tuple(aborted)
    marker_before: dict[int, int] = {}
    last_markers = []
    for header, marker in read:
        last_markers.append(marker_before.get(header.producer_id, -1))
        if ends_transaction(marker):
            marker_before[header.producer_id] = header.base_offset
    marker_behind: dict[int, str] = {}
    batches = []
    for (header, marker), last_marker in zip(reversed(read), reversed(last_markers), strict=True):
        if marker is not None:
            if ends_transaction(marker):
                marker_behind[header.producer_id] = marker
            outcome = PLAIN
        elif not header.is_transactional:
            outcome = PLAIN
        elif header.producer_id in marker_behind:
            outcome = COMMITTED if marker_behind[header.producer_id] == "COMMIT" else ABORTED
        elif header.base_offset < stable:
            is_aborted = any(
                producer_id == header.producer_id and last_marker < first <= header.base_offset
                for producer_id, first in aborted
            )
            outcome = ABORTED if is_aborted else COMMITTED
        elif open_from is None or open_from.get(header.producer_id, header.next_offset) <= header.base_offset:
            outcome = OPEN
        else:
            outcome = ENDED
        batches.append(Batch(header, marker, outcome))
    batches.reverse()
    return batches
