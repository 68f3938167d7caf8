"""The results of sent records: their offsets, and the errors that the program must still get."""

from collections.abc import Callable
from typing import NamedTuple

import anyio

from fencepost.client.errors import KafkaError, WouldBlockError
from fencepost.client.producer.accumulator import Batch

_MAX_ERRORS = 100


class RecordMetadata(NamedTuple):
    """An acknowledged record's partition and offset; `timestamp_ms` is the broker's if the topic has LogAppendTime.

    `offset` is -1 in one case: the broker recognises the record as a duplicate but does not know its offset any more.
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
    """A record in the producer's buffer, from `submit` or `send_nowait`. A program may ignore it."""

    __slots__ = ("_asked", "_batch", "_index", "_tracker")

    def __init__(self, batch: Batch, index: int, tracker: "Tracker") -> None:
        self._batch = batch
        self._index = index
        self._tracker = tracker
        self._asked = False
        tracker.follow(batch)

    def __repr__(self) -> str:
        return f"<Delivery to {self._batch.queue.partition}: {'done' if self.done else 'on its way'}>"

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
        """The result, once `done`. Raises as `wait` does, and WouldBlockError before."""
        if not self._batch.done.is_set():
            raise WouldBlockError(f"a record for {self._batch.queue.partition} is not acknowledged yet. Call `wait`")
        if not self._asked:
            self._asked = True
            self._tracker.asked(self._batch)
        topic, partition = self._batch.queue.partition
        return RecordMetadata(topic, partition, *self._batch.place_of(self._index))


class Tracker:
    """Tracks the batches of a group of records, and keeps the errors that the program has not got.

    A batch may have records of several groups: reading the result of one record does not cover the other groups.
    """

    def __init__(self, on_error: Callable[[KafkaError], None] | None = None) -> None:
        self._open: dict[Batch, int] = {}
        self._failed: dict[Batch, int] = {}  # how many records of the group have results that were not read
        self._on_error = on_error
        self._settled = anyio.Event()

    @property
    def errors(self) -> list[KafkaError]:
        """The errors of records whose results were not read; one for each batch, at most 100."""
        return [batch.error for batch in self._failed if batch.error is not None]

    def follow(self, batch: Batch) -> None:
        """A record of the group is in `batch`."""
        known = self._open.get(batch, 0)
        self._open[batch] = known + 1
        if not known:
            batch.listeners.append(self)

    def settled(self, batch: Batch) -> None:
        records = self._open.pop(batch)
        if batch.error is not None:
            if len(self._failed) < _MAX_ERRORS:
                self._failed[batch] = records
            if self._on_error is not None:
                self._on_error(batch.error)
        if not self._open:
            self._settled.set()

    def asked(self, batch: Batch) -> None:
        """The program has read the result of one of the group's records."""
        left = self._failed.get(batch)
        if left == 1:
            del self._failed[batch]
        elif left is not None:
            self._failed[batch] = left - 1

    async def wait(self) -> None:
        """Return when all batches are done."""
        while self._open:
            self._settled = anyio.Event()
            await self._settled.wait()

    def raise_errors(self) -> None:
        """Raise the errors whose results were not read, as one ExceptionGroup, and forget them."""
        errors = self.errors
        self._failed.clear()
        if errors:
            raise ExceptionGroup("records that were not acknowledged", errors)
