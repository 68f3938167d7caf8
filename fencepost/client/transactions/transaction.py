"""One open transaction, as the program sees it inside `async with producer.transaction() as txn`."""

from collections.abc import Iterable, Mapping
from typing import Any, Generic

from fencepost.client.consumer.consumer import Consumer, reader_of
from fencepost.client.core.acknowledgements import AcknowledgeType
from fencepost.client.core.group_types import CommittedOffset, GroupMetadata, offsets_to_commit
from fencepost.client.errors import AbortableError, FatalError, KafkaError
from fencepost.client.key_value import K, V
from fencepost.client.producer.accumulator import Batch
from fencepost.client.producer.appender import BATCH_LINGER_S
from fencepost.client.producer.ready_batches import whole_batches
from fencepost.client.producer.record_serializer import Headers
from fencepost.client.queues.message import AcknowledgementError, Acknowledging, Message
from fencepost.client.transactions.acknowledgements import API, NEEDS
from fencepost.client.transactions.lifecycle import TransactionManager
from fencepost.client.transactions.open_transaction import OpenTransaction, PreparedTransaction
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition


class Transaction(Generic[K, V]):
    """One open transaction. `send` waits only for buffer space; the end of the block waits for everything."""

    def __init__(self, manager: TransactionManager, state: OpenTransaction) -> None:
        self._manager = manager
        self._state = state
        self._appender = manager.appender
        self._linger_s = max(BATCH_LINGER_S, manager.appender.linger_s)

    def __repr__(self) -> str:
        ended = {True: "committed", False: "aborted", None: "open or of unknown outcome"}[self._state.committed]
        return f"<Transaction of {self._manager.transactional_id!r}: {ended}>"

    @property
    def committed(self) -> bool | None:
        """The outcome: True, it has committed; False, it was aborted; None, it is open or its outcome is unknown.

        Read it after a block that ended in Cancelled, Ctrl-C or a deadline: these may come before or after the
        commit. None after OutcomeUnknownError, until `producer.reinitialise()` has found the outcome.
        """
        return self._state.committed

    async def send(
        self,
        topic: str,
        value: V | None,
        *,
        key: K | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> None:
        """Send one record. Raises AbortableError once the transaction cannot commit any more."""
        self._state.check()
        batch = await self._appender.enqueue(
            topic, value, key, partition, headers, timestamp_ms, self._linger_s, self._state.check
        )
        self._follow(batch)

    async def send_many(self, topic: str, records: Iterable[tuple[K | None, V | None]]) -> None:
        """Send (key, value) pairs of one topic; the fastest way for many. Raises as `send` does."""
        self._state.check()
        await self._appender.enqueue_many(topic, records, None, self._linger_s, self._follow, self._state.check)

    async def send_batches(self, topic: str, partition: int, batches: bytes | bytearray | memoryview) -> None:
        """Send record batches (format v2) that are complete except for the producer's id, epoch and sequences.

        They are sent unchanged, compressed or not: only those fields and the transactional bit are filled in. Raises
        ValueError, with nothing sent, for bytes that are no such batch (CorruptBatch is one), and as `send` does.
        """
        self._state.check()
        for data, count in whole_batches(batches):
            place = TopicPartition(topic, partition)
            self._follow(await self._appender.enqueue_ready(place, data, count, self._state.check))

    def _follow(self, batch: Batch) -> None:
        self._state.tracker.follow(batch)
        self._manager.include(self._state, batch.queue.partition, batch)

    async def send_offsets(
        self, consumer: Consumer[Any, Any], offsets: Mapping[TopicPartition, int] | None = None
    ) -> None:
        """Make the consumer's positions (or `offsets`) part of the transaction, under its member and generation.

        If the transaction aborts, the consumer rewinds to its last commit. Raises AbortableError when the
        member is not part of the group's current generation any more (KIP-447), or has lost partitions since the
        transaction began, with uncommitted records.
        """
        self._state.check()
        committer = reader_of(consumer).committer
        if committer not in self._state.committers:
            self._state.committers.append(committer)
        if offsets is None:
            try:
                await committer.positions.wait_found()
            except KafkaError as error:
                self._state.fail(error)
            self._state.check()
        group, positions = committer.offsets_in_hand()
        if offsets is not None:
            positions = offsets_to_commit(offsets)
        try:
            committer.check_offsets(self._state.begun, positions)
        except AbortableError as error:
            self._state.fail(error)
            raise
        if positions:
            pending_commit = committer.begin_commit({partition: place.offset for partition, place in positions.items()})
            try:
                await self.send_group_offsets(group, positions)
            except BaseException:
                pending_commit.drop()
                raise
            self._state.pending_commits.append(pending_commit)

    async def send_group_offsets(self, group: GroupMetadata, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """The same for a consumer of another library: the caller gives the member and its offsets."""
        self._state.check()
        offsets = offsets_to_commit(offsets)
        self._state.requests_under_way += 1
        try:
            await self._manager.commit_offsets(self._state, group, offsets)
        finally:
            self._state.requests_under_way -= 1

    async def accept(self, *messages: Message[Any, Any]) -> None:
        """Make the acceptance of a queue's messages part of the transaction; the end of their blocks leaves them so.

        They are processed once it commits. If it aborts, their records are available again at once, to any member.
        Needs a broker of fencepost with `unstable.api.versions.enable`; others raise FatalError. Raises AbortableError
        (INVALID_RECORD_STATE) if a message's lock has ended, RuntimeError if one is decided already.
        """
        await self._acknowledge(messages, AcknowledgeType.ACCEPT)

    async def reject(self, *messages: Message[Any, Any]) -> None:
        """Archive messages once the transaction commits, as `Message.reject`. Raises as `accept` does."""
        await self._acknowledge(messages, AcknowledgeType.REJECT)

    async def _acknowledge(self, messages: Iterable[Message[Any, Any]], kind: AcknowledgeType) -> None:
        state = self._state
        state.check()
        by_queue: dict[Acknowledging, list[Message[Any, Any]]] = {}
        for message in dict.fromkeys(messages):
            message._check_undecided(kind)
            by_queue.setdefault(message._queue, []).append(message)
        what = "acknowledging messages in the transaction"
        state.requests_under_way += 1
        try:
            if not state.tv2:
                raise FatalError(NEEDS, code=ErrorCode.UNSUPPORTED_VERSION, api=API)
            for queue, some in by_queue.items():
                records = [message._record for message in some]
                async with queue.giving(records, kind):
                    await self._manager.ask_in(state, self._manager.link.acknowledging(some, kind).ask, what)
                state.acknowledged += records
                if state.over:  # another task has ended it meanwhile
                    state.end(state.committed)
        except BaseException as error:
            state.fail(error if isinstance(error, KafkaError) else AbortableError(f"{what} did not end: {error!r}"))
            if isinstance(error, AcknowledgementError):
                assert state.error is not None
                raise state.error from error
            raise
        finally:
            state.requests_under_way -= 1

    async def prepare(self) -> PreparedTransaction:
        """Wait until all records are acknowledged; then only the outside decision ends the transaction (KIP-939).

        For producers of `Client.two_phase_producer`. Store the returned value with the decision to commit.
        Raises AbortableError when the transaction cannot commit any more: then there is no decision.
        """
        self._state.check()
        return await self._manager.prepare(self._state)
