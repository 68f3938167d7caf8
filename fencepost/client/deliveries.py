"""What became of records: where they stand, who waits for them, and who has to be told that they failed."""

from collections.abc import Callable
from typing import NamedTuple

import trio

from fencepost.client.accumulator import Batch
from fencepost.client.errors import KafkaError

_MAX_ERRORS = 100


class RecordMetadata(NamedTuple):
    """Where an acknowledged record stands; `timestamp_ms` is the broker's where the topic says LogAppendTime.

    `offset` is -1 in the one case where the broker knows the record as a duplicate but not its place any more.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int

    @property
    def timestamp(self) -> int:
        """The same as `timestamp_ms`."""
        return self.timestamp_ms


class Delivery:
    """A record that is in the producer's buffer, from `submit` or `send_nowait`. Nothing needs to be done with it."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: Batch, index: int) -> None:
        self._batch = batch
        self._index = index

    @property
    def done(self) -> bool:
        """Whether `wait` would return or raise at once."""
        return self._batch.done.is_set()

    @property
    def partition(self) -> int:
        """The partition that the record goes to."""
        return self._batch.queue.partition.partition

    async def wait(self) -> RecordMetadata:
        """Wait for the acknowledgement. Raises what `Producer.send` raises; may be called again, and cancelled."""
        await self._batch.done.wait()
        return self.result()

    def result(self) -> RecordMetadata:
        """The same, once `done`; before, trio.WouldBlock is raised."""
        if not self._batch.done.is_set():
            raise trio.WouldBlock
        topic, partition = self._batch.queue.partition
        return RecordMetadata(topic, partition, *self._batch.place_of(self._index))


class Tracker:
    """Counts the batches that a group of records went into, and keeps what went wrong with them."""

    def __init__(self, on_error: Callable[[KafkaError], None] | None = None) -> None:
        self._open: set[Batch] = set()
        self._failed: list[Batch] = []
        self._on_error = on_error
        self._settled = trio.Event()

    @property
    def errors(self) -> list[KafkaError]:
        """What went wrong, as far as nobody was told elsewhere; one for each batch, at most 100."""
        return [batch.error for batch in self._failed if batch.error is not None and not batch.told]

    def follow(self, batch: Batch) -> None:
        """A record of the group is in `batch`."""
        if batch not in self._open:
            self._open.add(batch)
            batch.listeners.append(self)

    def settled(self, batch: Batch) -> None:
        """`batch` is done."""
        self._open.discard(batch)
        if batch.error is not None:
            if len(self._failed) < _MAX_ERRORS:
                self._failed.append(batch)
            if self._on_error is not None:
                self._on_error(batch.error)
        if not self._open:
            self._settled.set()

    async def wait(self) -> None:
        """Return when all batches are done."""
        while self._open:
            self._settled = trio.Event()
            await self._settled.wait()

    def raise_errors(self) -> None:
        """Raise what nobody was told yet, as one ExceptionGroup, and forget it."""
        errors, self._failed = self.errors, []
        if errors:
            raise ExceptionGroup("records that were not acknowledged", errors)
