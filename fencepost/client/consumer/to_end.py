"""`consumer.read_to_end()`: batches up to the ends that the partitions have when it begins."""

from bisect import bisect_left
from collections.abc import AsyncIterator, Callable

import anyio
import anyio.lowlevel

from fencepost.client.consumer.consumed import ConsumerBatch
from fencepost.client.consumer.fetch_state import PartitionState
from fencepost.client.consumer.positions import Positions
from fencepost.client.consumer.reader import Reader
from fencepost.client.key_value import K, V
from fencepost.protocol.records import Record
from fencepost.protocol.topics import TopicPartition


class BatchesToEnd(AsyncIterator[ConsumerBatch[K, V]]):
    """See `Consumer.read_to_end`. `may_come` returns whether a subscription may still bring partitions."""

    def __init__(self, reader: Reader[K, V], positions: Positions, limit: int, may_come: Callable[[], bool]) -> None:
        self._reader = reader
        self._positions = positions
        self._limit = limit
        self._may_come = may_come
        self._ends: dict[TopicPartition, int] = {}

    async def __anext__(self) -> ConsumerBatch[K, V]:
        reader = self._reader
        await reader.done_with_last()
        reader.fetcher.ends = self._ends
        while True:
            await self._find_ends()
            await reader.unpack_ahead(self._limit, self._unfinished(reader.order()))
            await anyio.lowlevel.checkpoint()
            await reader.group.wait_for_revocation()
            reader.progress.check()
            if reader.fetcher.states.keys() - self._ends.keys():
                continue  # the group has assigned partitions meanwhile
            unfinished = self._unfinished(reader.in_turn())
            if not unfinished and (self._ends or not self._may_come()):
                reader.fetcher.ends = None
                reader.fetcher.wake()
                raise StopAsyncIteration
            if not any(state.readable() for state in unfinished):
                self._make_room(unfinished)
                await reader.wait_arrived()
                continue
            runs = self._cut(reader.take(self._limit, unfinished))
            if runs:
                return await reader.give_batch(runs)

    async def _find_ends(self) -> None:
        """Find the ends of newly assigned partitions: the last stable offset for read_committed."""
        new = [partition for partition in self._reader.fetcher.states if partition not in self._ends]
        if new:
            self._ends.update(await self._positions.end_offsets(*new))
            self._reader.fetcher.wake()

    def _unfinished(self, states: list[PartitionState]) -> list[PartitionState]:
        """The partitions with records below their ends."""
        return [
            state
            for state in states
            if not state.paused_by_program
            and (state.position is None or state.position < self._ends.get(state.partition, 0))
        ]

    def _make_room(self, unfinished: list[PartitionState]) -> None:
        """Drop fetched records beyond the ends, so that those below fit in."""
        fetcher = self._reader.fetcher
        if fetcher.full:
            for state in fetcher.states.values():
                if state.chunks and state not in unfinished:
                    state.drop_buffered()
            fetcher.wake()

    def _cut(self, runs: list[tuple[TopicPartition, list[Record]]]) -> list[tuple[TopicPartition, list[Record]]]:
        """Without the records beyond the ends, which the next read gets."""
        kept = []
        for partition, records in runs:
            count = bisect_left(records, self._ends[partition], key=lambda record: record.offset)
            if count < len(records):
                self._reader.fetcher.states[partition].jump(records[count].offset)
                self._reader.fetcher.metrics.records_consumed -= len(records) - count
            if count:
                kept.append((partition, records[:count]))
        return kept
