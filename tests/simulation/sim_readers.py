"""Readers of the simulated broker: what they were shown, batch by batch, and the bounds they were told."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from fencepost.protocol.batch_header import iter_headers
from fencepost.protocol.control_records import ControlType, control_type
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.isolation import AbortedFilter
from fencepost.protocol.messages.api01_fetch import FetchPartition, FetchRequest, FetchTopic
from fencepost.protocol.messages.api09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from fencepost.protocol.records import decode_records
from tests.kit.determinism import nap
from tests.kit.history import READ_COMMITTED, Log, Place, Reader
from tests.simulation.lines import Line, Lost

FETCH_VERSION = 11
BYTES_MAX = 1 << 20
MISSES_MAX = 1000
P = TypeVar("P", bound=Place)


class RawBatch(NamedTuple):
    """One batch as it stands in the log."""

    base_offset: int
    last_offset: int
    producer_id: int
    epoch: int
    commits: bool | None
    """None for data; of a marker, whether it commits."""
    values: Sequence[tuple[int, str]]


class Shown(NamedTuple):
    """What one fetch brought of one partition."""

    values: Log
    next_offset: int
    high_watermark: int
    last_stable_offset: int


async def fetch(
    line: Line, positions: Mapping[Place, int], committed: bool, wait_ms: int = 0
) -> dict[Place, tuple[Any, bytes]]:
    """The answer of each partition with its bytes. Raises Lost; no error is expected."""
    topics: dict[str, list[Any]] = {}
    for (topic, partition), offset in positions.items():
        ask = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=BYTES_MAX)
        topics.setdefault(topic, []).append(ask)
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=BYTES_MAX,
        isolation_level=int(committed),
        topics=[FetchTopic(topic=topic, partitions=asks) for topic, asks in topics.items()],
    )
    answer = await line.ask(FETCH_VERSION, request, 1.0 + wait_ms / 1000)
    found: dict[Place, tuple[Any, bytes]] = {}
    for topic in answer.responses:
        for part in topic.partitions:
            place = (topic.topic, part.partition_index)
            if part.error_code in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER):
                raise Lost(sent=False)  # offline until somebody starts the broker again, or another one leads
            assert not part.error_code, f"{place} from {positions[place]}: {ErrorCode(part.error_code).name}"
            found[place] = (part, b"" if part.records is None else bytes(part.records))
    return found


def shown(answer: Any, data: bytes, position: int, committed: bool) -> Shown:
    """What an application sees of an answer (row I2)."""
    aborted = [(entry.producer_id, entry.first_offset) for entry in answer.aborted_transactions or ()]
    admits = AbortedFilter(aborted if committed else None).admits
    values: Log = []
    for start, header in iter_headers(data):
        if admits(header, data, start):
            values += [
                (record.offset, (record.value or b"").decode())
                for record in decode_records(data, start, header)
                if record.offset >= position
            ]
        position = max(position, header.next_offset)
    return Shown(values, position, answer.high_watermark, answer.last_stable_offset)


def raw_batches(data: bytes) -> list[RawBatch]:
    """The batches of an answer with their markers."""
    found = []
    for start, header in iter_headers(data):
        commits = control_type(data, start, header) is ControlType.COMMIT if header.is_control else None
        values = (
            [(record.offset, (record.value or b"").decode()) for record in decode_records(data, start, header)]
            if commits is None
            else []
        )
        identity = header.producer_id, header.producer_epoch
        found.append(RawBatch(header.base_offset, header.last_offset, *identity, commits, values))
    return found


async def follow(line: Line, reader: Reader, places: Iterable[Place], pause_seconds: float) -> None:
    """Read along for ever, and note everything in `reader`; each partition is one pass from its first offset."""
    committed = reader.isolation == READ_COMMITTED
    positions = dict.fromkeys(places, 0)
    logs: dict[Place, Log] = {place: [] for place in positions}
    reader.passes += [(place, start, logs[place]) for place, start in positions.items()]
    while True:
        try:
            answers = await fetch(line, positions, committed, wait_ms=500)
        except Lost:
            await nap(0.05)
            continue
        for place, (answer, data) in answers.items():
            seen = shown(answer, data, positions[place], committed)
            reader.bounds[place].append((seen.high_watermark, seen.last_stable_offset))
            logs[place] += seen.values
            positions[place] = seen.next_offset
        await nap(pause_seconds)


async def read_all(
    line: Line, places: Iterable[Place], committed: bool, late_markers: bool = False
) -> tuple[dict[Place, Log], dict[Place, list[RawBatch]]]:
    """Whole partitions, from their first offsets to their ends as they are now.

    `late_markers`: a marker that another broker wrote may be a moment behind, where the log was not open.
    """
    positions = dict.fromkeys(places, 0)
    logs: dict[Place, Log] = {place: [] for place in positions}
    raw: dict[Place, list[RawBatch]] = {place: [] for place in positions}
    misses = 0
    while positions:
        try:
            answers = await fetch(line, positions, committed)
        except Lost:
            await nap(0.05)
            continue
        for place, (answer, data) in answers.items():
            seen = shown(answer, data, positions[place], committed)
            if seen.next_offset == positions[place]:
                end = seen.last_stable_offset if committed and not late_markers else seen.high_watermark
                if seen.next_offset < end and misses < MISSES_MAX:
                    misses += 1  # the bytes are on their way from the stores of a cluster
                    await nap(0.01)
                else:
                    del positions[place]
                continue
            logs[place] += seen.values
            raw[place] += raw_batches(data)
            positions[place] = seen.next_offset
    return logs, raw


async def committed_offsets(line: Line, group_id: str, places: Collection[P]) -> dict[P, int]:
    """Where a group stands, 0 where it never committed; waits for a transaction that has yet to end (row T6)."""
    while True:
        found = await ask_offsets(line, group_id, places)
        if found is not None:
            return found
        await nap(0.05)


async def ask_offsets(line: Line, group_id: str, places: Collection[P]) -> dict[P, int] | None:
    """The same by one request; None where nobody answers, or not yet."""
    topics: dict[str, list[int]] = {}
    for topic, partition in places:
        topics.setdefault(topic, []).append(partition)
    request = OffsetFetchRequest(
        group_id=group_id,
        topics=[OffsetFetchRequestTopic(name=name, partition_indexes=numbers) for name, numbers in topics.items()],
        require_stable=True,
    )
    try:
        answer = await line.ask(7, request)
    except Lost:
        return None
    parts = [(topic.name, part) for topic in answer.topics for part in topic.partitions]
    if answer.error_code or any(part.error_code for _, part in parts):
        return None
    found = {(name, part.partition_index): max(0, part.committed_offset) for name, part in parts}
    return {place: found[place] for place in places}
