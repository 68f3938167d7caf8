"""One open transaction, as the program sees it inside `async with producer.transaction() as txn`."""

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from fencepost.client.core.group_types import CommittedOffset, GroupMetadata
from fencepost.client.errors import AbortableError, FatalError, KafkaError
from fencepost.client.producer.producer import BATCH_LINGER_S, Headers, Tracker
from fencepost.client.producer.ready_batches import whole_batches
from fencepost.client.transactions.requests import MOMENTS, abortable
from fencepost.protocol.topics import TopicPartition

if TYPE_CHECKING:
    from fencepost.client.consumer.committing import Promise
    from fencepost.client.consumer.consumer import Consumer
    from fencepost.client.producer.accumulator import Batch
    from fencepost.client.transactions.producer import TransactionalProducer
    from fencepost.client.transactions.two_phase import PreparedTransaction


class Transaction:
    """One open transaction. `send` waits only for buffer space; the end of the block waits for everything."""

    def __init__(self, producer: "TransactionalProducer", tv2: bool, consumer: "Consumer[Any, Any] | None") -> None:
        self._producer = producer
        self.tv2 = tv2
        self.tracker = Tracker(self.fail)
        self.partitions: set[TopicPartition] = set()
        self.pending: set[TopicPartition] = set()
        self.groups: set[str] = set()
        self.consumers: list[Consumer[Any, Any]] = [] if consumer is None else [consumer]
        self.promises: list[Promise] = []
        self.error: KafkaError | None = None
        self._begun = next(MOMENTS)
        self.ending = False
        self.over = False
        self.offsets_under_way = 0
        self._committed: bool | None = None

    @property
    def committed(self) -> bool | None:
        """What became of it: True, it has committed; False, it was aborted; None, it is open, or nobody knows.

        To be asked behind the block that ended in Cancelled, Ctrl-C or a deadline, which alone do not tell whether the
        commit was answered before. None after OutcomeUnknown, until `producer.reinitialise()` has found it out.
        """
        return self._committed

    def _ended(self, committed: bool | None) -> None:
        """It is over; None where nobody knows yet how it ended."""
        self.over = True
        self._committed = committed
        for promise in self.promises:
            if committed:
                promise.keep()
            else:
                promise.drop()
        self.promises.clear()

    async def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> None:
        """Hand in one record. Raises AbortableError as soon as it is known that the transaction can not commit."""
        self.check()
        batch = await self._producer._enqueue(
            topic, value, key, partition, headers, timestamp_ms, self.linger_s, self.check
        )
        self._follow(batch)

    async def send_many(self, topic: str, records: Iterable[tuple[Any, Any]]) -> None:
        """Hand in (key, value) pairs of one topic; the quickest way for many. Raises as `send` does."""
        self.check()
        await self._producer._enqueue_many(topic, records, None, self.linger_s, self._follow, self.check)

    async def send_batches(self, topic: str, partition: int, batches: bytes | bytearray | memoryview) -> None:
        """Hand in record batches (format v2) that are whole but for the producer's id, epoch and sequences.

        They are sent as they are, compressed or not: only those fields and the transactional bit are filled in. Raises
        ValueError, with nothing handed in, for what is no such batch (CorruptBatch is one), and as `send` does.
        """
        self.check()
        for data, count in whole_batches(batches):
            place = TopicPartition(topic, partition)
            self._follow(await self._producer._enqueue_ready(place, data, count, self.check))

    def _follow(self, batch: "Batch") -> None:
        self.tracker.follow(batch)
        self._producer._include(self, batch.queue.partition, batch)

    async def send_offsets(
        self, consumer: "Consumer[Any, Any]", offsets: Mapping[TopicPartition, int] | None = None
    ) -> None:
        """Make the consumer's positions (or `offsets`) part of the transaction, under its member and generation.

        If the transaction aborts, the consumer goes back to where it last committed. Raises AbortableError when the
        member is not part of the group's current generation any more (KIP-447), or has lost partitions since the
        transaction began, with records given and not committed.
        """
        self.check()
        if consumer not in self.consumers:
            self.consumers.append(consumer)
        if offsets is None:
            try:
                await consumer._wait_found()
            except KafkaError as error:
                self.fail(error)
            self.check()
        group, positions = consumer.offsets_in_hand()
        if offsets is not None:
            positions = {partition: CommittedOffset(offset) for partition, offset in offsets.items()}
        try:
            consumer._vouch(self._begun, positions)
        except AbortableError as error:
            self.fail(error)
            raise
        if positions:
            promise = consumer._promise({partition: place.offset for partition, place in positions.items()})
            try:
                await self.send_group_offsets(group, positions)
            except BaseException:
                promise.drop()
                raise
            self.promises.append(promise)

    async def send_group_offsets(self, group: GroupMetadata, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """The same for a group whose consumer is not ours: the caller says who commits what."""
        self.check()
        self.offsets_under_way += 1
        try:
            await self._producer._commit_offsets(self, group, offsets)
        finally:
            self.offsets_under_way -= 1

    async def prepare(self) -> "PreparedTransaction":
        """Everything is acknowledged, nothing more is taken, and only the outside decision ends it (KIP-939).

        For producers of `Client.two_phase_producer`; what it returns is to be stored with the decision to commit.
        Raises AbortableError when the transaction can not commit any more: then there is nothing to decide.
        """
        self.check()
        return await self._producer._prepare(self)

    @property
    def linger_s(self) -> float:
        """How long a record may wait for others; the end of the transaction sends everything anyway."""
        return max(BATCH_LINGER_S, self._producer.linger_s)

    def check(self) -> None:
        """Raise what has gone wrong so far."""
        if self.over or self.ending:
            raise RuntimeError("the transaction is over")
        if self.error is not None:
            raise self.error

    def fail(self, error: KafkaError) -> None:
        """The transaction can not commit any more; the first reason counts."""
        if self.error is None:
            self.error = error if isinstance(error, FatalError | AbortableError) else abortable(error)


class TransactionContext:
    """What `producer.transaction()` returns: begins, and at the end commits, or aborts on error and on cancel."""

    def __init__(self, producer: "TransactionalProducer", consumer: "Consumer[Any, Any] | None") -> None:
        self._producer = producer
        self._consumer = consumer
        self._transaction: Transaction | None = None

    async def __aenter__(self) -> Transaction:
        self._transaction = await self._producer._begin(self._consumer)
        return self._transaction

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        transaction = self._transaction
        assert transaction is not None
        if error is None:
            await self._producer._finish(transaction)
        else:
            await self._producer._abort(transaction, error)
