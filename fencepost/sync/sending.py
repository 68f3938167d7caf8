"""Passes records to the trio thread, many at a time, also if the program sends them one by one."""

import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from fencepost.client.key_value import K, V
from fencepost.client.producer.deliveries import Delivery as AsyncDelivery
from fencepost.client.producer.producer import Producer as AsyncProducer
from fencepost.client.producer.producer import ProducerBatch as AsyncProducerBatch
from fencepost.client.producer.record_serializer import Headers
from fencepost.client.transactions.producer import TransactionalProducer as AsyncTransactionalProducer
from fencepost.client.transactions.producer import TransactionBlock as AsyncTransactionBlock
from fencepost.client.transactions.transaction import Transaction as AsyncTransaction
from fencepost.client.transactions.two_phase import TwoPhaseProducer as AsyncTwoPhaseProducer
from fencepost.protocol.topics import TopicPartition
from fencepost.sync.loop import Loop
from fencepost.sync.mirror import Mirror, Opened

CHUNK = 500
"""How many records cross between the threads at a time."""
WAIT_S = 0.005
"""How long a record waits for others on this side, while the program sends more."""
_Record = tuple[str, Any, Any, int | None, Headers, int | None]
"""(topic, value, key, partition, headers, timestamp in epoch ms)"""


class Sending(Mirror):
    """Takes single records and passes them on in batches. Several threads may send records.

    A later call raises the error of a record, at the latest the end of the block.
    """

    def __init__(self, loop: Loop, inner: Any) -> None:
        super().__init__(loop, inner)
        self._records: list[_Record] = []
        self._since = 0.0
        self._lock = threading.RLock()

    def send(
        self,
        topic: str,
        value: V | None,
        *,
        key: K | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> None:
        """Send one record, with the arguments of the async method; it crosses with others, within some milliseconds.

        Waits while the buffer is full. Raises errors of earlier records, too.
        """
        with self._lock:
            now = time.monotonic()
            if not self._records:
                self._since = now
            record = (topic, value, key, partition, headers, timestamp_ms)
            self._records.append(record)
            if len(self._records) >= CHUNK or now - self._since > WAIT_S:
                try:
                    self._settle()
                except BaseException:
                    if self._records and self._records[-1] is record:
                        self._records.pop()  # as in the async method: a call that raises does not send its record
                    raise

    def _send_many(self, topic: str, records: Iterable[tuple[Any, Any]], **more: Any) -> None:
        source = iter(records)
        with self._lock:
            while chunk := list(islice(source, CHUNK)):
                self._call("send_many", topic, chunk, **more)

    def _call(self, name: str, *args: Any, patient: bool = False, **more: Any) -> Any:
        self._settle()
        return super()._call(name, *args, patient=patient, **more)

    def _settle(self) -> None:
        with self._lock:
            records, self._records = deque(self._records), []
            if not records:
                return
            try:
                self._loop.call(self._hand_over, records)
            except BaseException:
                self._records = list(records)  # the others wait for the next call
                raise

    async def _hand_over(self, records: deque[_Record]) -> None:
        while records:
            topic, value, key, partition, headers, timestamp_ms = records[0]
            try:
                await self._inner.send(
                    topic, value, key=key, partition=partition, headers=headers, timestamp_ms=timestamp_ms
                )
            except Exception:
                records.popleft()  # this record is wrong, or no more records are accepted
                raise
            records.popleft()


class ProducerBatch(Sending, Opened, of=AsyncProducerBatch):
    """Many records: the end of the block waits for all acknowledgements, as fencepost.client.ProducerBatch.

    If the block ends with an exception, records that have not crossed to the client's thread are not sent.
    """

    def send_many(
        self, topic: str, records: Iterable[tuple[K | None, V | None]], *, partition: int | None = None
    ) -> None:
        """Send (key, value) pairs of one topic, 500 at a time; `records` is iterated in this thread."""
        self._send_many(topic, records, partition=partition)


class Transaction(Sending, of=AsyncTransaction):
    """One open transaction, as fencepost.Transaction."""

    def send_many(self, topic: str, records: Iterable[tuple[K | None, V | None]]) -> None:
        """Send (key, value) pairs of one topic, 500 at a time; `records` is iterated in this thread."""
        self._send_many(topic, records)

    def send_offsets(self, consumer: "HasPositions", offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Make the consumer's positions (or `offsets`) part of the transaction; see fencepost.Transaction.

        In the middle of an iteration over single records, those count that the program has got.
        """
        if offsets is None and isinstance(consumer, HasPositions):
            offsets = consumer._handed_out()
        self._call("send_offsets", consumer, offsets)


class HasPositions(Mirror):
    """A consumer with positions, for transactions."""

    def _handed_out(self) -> Any:
        """Positions that differ from those of the async consumer, as offsets to commit; None if none do."""
        raise NotImplementedError


class TransactionBlock(Opened, of=AsyncTransactionBlock):
    """The result of `transaction()`: begins with the `with`, commits at its end, aborts on any exception and Ctrl-C."""


class Delivery(Mirror, of=AsyncDelivery):
    """A record in the producer's buffer, as fencepost.Delivery."""


class _Producing(Opened):
    """A producer that also flushes the records on this side of its open batches and transactions."""

    def __init__(self, loop: Loop, inner: Any) -> None:
        super().__init__(loop, inner)
        self._sending: list[Sending] = []

    def _is_open(self, made: Any, is_open: bool) -> None:
        if isinstance(made, Sending):
            self._sending = [one for one in self._sending if one is not made] + [made] * is_open

    def _call(self, name: str, *args: Any, patient: bool = False, **more: Any) -> Any:
        for one in list(self._sending):
            one._settle()
        return super()._call(name, *args, patient=patient, **more)


class Producer(_Producing, of=AsyncProducer):
    """As fencepost.Producer, blocking. Several threads may use it."""

    def send_many(
        self, topic: str, records: Iterable[tuple[K | None, V | None]], *, partition: int | None = None
    ) -> None:
        """Send (key, value) pairs of one topic and wait for all acknowledgements; raises as `batch` does."""
        with self.batch() as batch:
            batch.send_many(topic, records, partition=partition)


class TransactionalProducer(_Producing, of=AsyncTransactionalProducer):
    """As fencepost.TransactionalProducer, blocking."""


class TwoPhaseProducer(TransactionalProducer, of=AsyncTwoPhaseProducer):
    """As fencepost.TwoPhaseProducer, blocking."""
