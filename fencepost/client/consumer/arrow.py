"""A consumer's records as Arrow record batches: whole responses become columns, and no record becomes an object."""

from collections import deque
from collections.abc import AsyncIterator, Iterable
from typing import Any, NamedTuple

import anyio
import anyio.lowlevel
import anyio.to_thread
import numpy as np
import pyarrow as pa

from fencepost.client.consumer.chunk import Chunk
from fencepost.client.consumer.fetch_state import PartitionState
from fencepost.client.consumer.reader import Reader
from fencepost.protocol.batch_header import BatchHeader, UnreadableBatch
from fencepost.protocol.column_types import ALL_FIELDS, RecordColumns, arrow_numbers, arrow_text, headers_type
from fencepost.protocol.columns import iter_columns
from fencepost.protocol.compression import Compression
from fencepost.protocol.topics import TopicPartition

_THREAD_FROM_BYTES = 32 << 10
_BUILT_BYTES = 64 << 20
"""No further columns are built ahead after this many bytes: each batch may have the full limit."""
_PACKED_RATIO = 8
"""The assumed growth of a compressed batch; if it grows more, columns come in more and smaller pieces."""

SCHEMA = pa.schema(
    [
        pa.field("topic", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("ms", "UTC")),
        pa.field("timestamp_type", pa.int32(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", headers_type()),
    ]
)
"""What `Consumer.arrow` yields, if no columns are named."""


class _Ready(NamedTuple):
    """Columns that are built and not given yet: valid as long as the partition's position is where they begin."""

    state: PartitionState
    jumps: int
    chunk: Chunk
    position: int
    columns: RecordColumns
    next_position: int


class ArrowBatches(AsyncIterator[pa.RecordBatch]):
    """See `Consumer.arrow`. Raises ValueError for a column that does not exist."""

    def __init__(self, reader: Reader[Any, Any], max_bytes: int, columns: Iterable[str] | None) -> None:
        wanted = SCHEMA.names if columns is None else list(columns)
        unknown = sorted(set(wanted) - set(SCHEMA.names))
        if unknown or not wanted:
            raise ValueError(f"columns {unknown}: must be some of {', '.join(SCHEMA.names)}")
        self._reader = reader
        self._max_bytes = max(max_bytes, 1)
        self._schema = pa.schema([field for field in SCHEMA if field.name in wanted])
        self._fields = ALL_FIELDS & frozenset(wanted)
        self._ready: deque[_Ready] = deque()

    async def __anext__(self) -> pa.RecordBatch:
        reader = self._reader
        await reader.done_with_last()
        while True:
            await reader.group.wait_for_revocation()
            found = self._next_ready()
            if found is not None:
                # No await from here on, so that a cancelled read has either moved the position or not.
                found.state.given_until(found.chunk, found.next_position, len(found.columns))
                reader.fetcher.metrics.records_consumed += len(found.columns)
                reader.fetcher.wake()
                if len(found.columns):
                    reader.give()
                    return self._batch(found.state.partition, found.columns)
                continue
            await reader.wait_available(1)
            await anyio.lowlevel.checkpoint()
            reader.progress.check()
            for state in reader.in_turn():
                if await self._decode(state):
                    break

    def _next_ready(self) -> _Ready | None:
        while self._ready:
            found = self._ready.popleft()
            state = found.state
            if state.jumps == found.jumps and state.position == found.position and not state.paused:
                return found
        return None

    async def _decode(self, state: PartitionState) -> bool:
        """Build columns of the next records in a partition; False if there are none."""
        if not state.readable():
            return False
        chunk, position, jumps = state.chunks[0], state.position or 0, state.jumps
        if chunk.at < len(chunk.records):
            state.drop_buffered()  # `batches` has read a part of this one; it is fetched again from the position on
            self._reader.fetcher.wake()
            return False
        if not chunk.batches:
            wrong = chunk.damage
            assert wrong is not None, "empty chunks are not kept"
            raise self._reader.unreadable(state, wrong) from wrong
        batches, packed = self._some(chunk)
        fields, limit = self._fields, chunk.limit_bytes

        def build() -> tuple[list[RecordColumns], bool]:
            found: list[RecordColumns] = []
            room = _BUILT_BYTES
            for columns in iter_columns(chunk.buffer, batches, first_offset=position, fields=fields, max_bytes=limit):
                if room <= 0:
                    return found, False
                found.append(columns)
                room -= columns.nbytes
            return found, True

        while True:
            try:
                in_thread = packed >= _THREAD_FROM_BYTES
                built, complete = await anyio.to_thread.run_sync(build) if in_thread else build()
                break
            except UnreadableBatch as wrong:
                if len(batches) == 1:
                    raise self._reader.unreadable(state, wrong) from wrong
                del batches[len(batches) // 2 :]  # those before it come first
                await anyio.lowlevel.checkpoint()
        at = position
        for number, columns in enumerate(built):
            last = int(columns.offset[-1]) + 1
            until = batches[-1][1].next_offset if complete and number == len(built) - 1 else last
            self._ready.append(_Ready(state, jumps, chunk, at, columns, until))
            at = until
        if not built and state.jumps == jumps and state.position == position:
            state.given_until(chunk, batches[-1][1].next_offset, 0)
        return True

    def _some(self, chunk: Chunk) -> tuple[list[tuple[int, BatchHeader]], int]:
        """The batches to build at once, and how many bytes of them are compressed."""
        chosen: list[tuple[int, BatchHeader]] = []
        expected = packed = 0
        for start, header in chunk.batches:
            is_packed = header.compression is not Compression.NONE
            size = header.size_bytes * (_PACKED_RATIO if is_packed else 1)
            if chosen and expected + size > self._max_bytes:
                break
            chosen.append((start, header))
            expected += size
            packed += header.size_bytes if is_packed else 0
        return chosen, packed

    def _batch(self, partition: TopicPartition, columns: RecordColumns) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [self._column(field.name, partition, columns) for field in self._schema], schema=self._schema
        )

    def _column(self, name: str, partition: TopicPartition, columns: RecordColumns) -> Any:
        match name:
            case "topic":
                places = arrow_numbers(np.zeros(len(columns), np.int32), pa.int32())
                return pa.DictionaryArray.from_arrays(places, arrow_text(partition.topic))
            case "partition":
                return arrow_numbers(np.full(len(columns), partition.partition, np.int32), pa.int32())
            case "timestamp":
                known = columns.timestamp_ms >= 0
                return arrow_numbers(columns.timestamp_ms, pa.timestamp("ms", "UTC"), known)
            case "offset":
                return arrow_numbers(columns.offset, pa.int64())
            case "timestamp_type":
                return arrow_numbers(columns.timestamp_type, pa.int32())
        return getattr(columns, name)
