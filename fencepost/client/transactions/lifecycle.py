"""The transactions of one transactional id: all of `async with producer.transaction()` counts, or nothing of it.

`core.txn_machine` decides the order of the steps and the meaning of each response.
"""

from collections.abc import Awaitable, Callable, Mapping

import anyio
import anyio.lowlevel

from fencepost.client.background import Background, shielded
from fencepost.client.config import TransactionalProducerConfig
from fencepost.client.consumer.committer import Committer
from fencepost.client.core.begin_delay import BeginDelay
from fencepost.client.core.group_types import CommittedOffset, GroupMetadata
from fencepost.client.core.txn_state import NO_PRODUCER, Begin, Event, Outcome, Phase, Producer, StepResult
from fencepost.client.errors import (
    AbortableError,
    FatalError,
    FencedError,
    KafkaError,
    OutcomeUnknownError,
    RecordRejectedError,
)
from fencepost.client.network.cluster import Cluster
from fencepost.client.producer.accumulator import Batch
from fencepost.client.producer.appender import Appender
from fencepost.client.producer.producer import NO_LIMIT
from fencepost.client.producer.sender import Sender
from fencepost.client.transactions.driver import TransactionDriver, UnknownOutcome, error_for_outcome, may_begin
from fencepost.client.transactions.open_transaction import OpenTransaction, PreparedTransaction
from fencepost.client.transactions.requests import TransactionLink
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition

ABORT_GRACE_S = 5.0
TV1_PRODUCE_VERSION = 11
_BROKEN_OUTCOMES = (Outcome.FENCED, Outcome.FORBIDDEN, Outcome.FATAL)


class TransactionManager:
    """The transactions of one transactional id, with its coordinator, its records and its offsets."""

    two_phase = False

    def __init__(
        self,
        cluster: Cluster,
        background: Background,
        transactional_id: str,
        config: TransactionalProducerConfig,
        purpose: str,
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._purpose = purpose
        self.appender = Appender(cluster, config)
        self.transactional_id = transactional_id
        self._background = background
        timeout_ms = config.transaction_timeout_ms
        self.link = TransactionLink(cluster, transactional_id, purpose, timeout_ms, two_phase=self.two_phase)
        self._driver = TransactionDriver(cluster, self.link)
        self._policy = self._driver.policy
        self._scope: anyio.CancelScope | None = None
        self._broken_by: KafkaError | None = None
        self._transaction: OpenTransaction | None = None
        self._unknown_outcome: OpenTransaction | None = None
        self._begin_delay = BeginDelay()
        self._adding = False
        self._added = anyio.Event()

    # -- open and close

    async def open(self) -> None:
        """Fence older producers of the id, and start the sender."""
        sender = Sender(self._cluster, self.appender.accumulator, self, self._config, self._purpose)
        self.appender.sender = sender
        try:
            await self._initialise()
        except BaseException:
            self._cluster.release(self._purpose)  # `close` is not called
            raise
        self._scope = self._background.start_soon(sender.run)

    async def close(self) -> None:
        """Fail what is not acknowledged."""
        assert self._scope is not None
        self.appender.close()
        self._scope.cancel()
        await anyio.lowlevel.cancel_shielded_checkpoint()

    async def reinitialise(self) -> bool | None:
        """After OutcomeUnknownError: find the transaction's outcome, and prepare for the next transaction.

        The commit is sent again until the coordinator answers. Returns True if it has committed, now or before; False
        if it was aborted; None if no outcome was open, or if the coordinator has forgotten it because it replaced the
        producer id. Consumers tied to the transaction read their committed offsets again.

        Raises FencedError when a newer producer has taken the transactional id (then only the log shows the outcome),
        and OutcomeUnknownError when `default_api_timeout` ends again without a response.
        """
        phase = self._driver.state.phase
        if phase in (Phase.OPEN, Phase.COMMITTING, Phase.ABORTING, Phase.PREPARED, Phase.COMPLETING):
            raise RuntimeError("a transaction is open")
        self._raise_if_broken()
        result = await self._driver.drive(Event.RECOVER, "finding the outcome of the transaction")
        transaction, self._unknown_outcome = self._unknown_outcome, None
        for committer in transaction.committers if transaction is not None else ():
            committer.progress.forget_positions()
        if result.outcome in (Outcome.COMMITTED, Outcome.EXPIRED, Outcome.ABORTED):
            committed = result.outcome is Outcome.COMMITTED
            if transaction is not None:
                transaction.end(committed)
            return committed
        if result.outcome is Outcome.READY:
            return None
        if self._driver.state.phase is Phase.UNKNOWN:
            self._unknown_outcome = transaction
        raise self._lost(result, "finding the outcome of the transaction")

    async def _initialise(self) -> None:
        what = f"initialising the transactional id {self.transactional_id!r}"
        result = await self._driver.drive(Event.OPEN, what)
        if result.outcome is not Outcome.READY:
            raise self._lost(result, what)

    async def prepare(self, transaction: OpenTransaction) -> PreparedTransaction:
        raise RuntimeError("only a producer of Client.two_phase_producer() can prepare a transaction")

    def _lost(self, result: StepResult, what: str) -> KafkaError:
        """The error for an outcome; in phase BROKEN it also ends the producer."""
        error = error_for_outcome(result, self._driver.last, what)
        if self._driver.state.phase is Phase.BROKEN:
            broken_by = error
            if result.outcome is Outcome.UNKNOWN:
                broken_by = FencedError(
                    "a newer producer has the transactional id", code=error.code, api=error.api, node=error.node
                )
            self._break(broken_by)
        return error

    def _break(self, error: KafkaError) -> None:
        self._broken_by = error
        if self.appender.sender is not None:
            self.appender.sender.fail(error)

    @property
    def _sender(self) -> Sender:
        assert self.appender.sender is not None
        return self.appender.sender

    def _raise_if_broken(self) -> None:
        if self._broken_by is not None:
            raise self._broken_by

    # -- the identity for the sender

    @property
    def current(self) -> Producer | None:
        """(producer id, epoch) of the transaction that is open or comes next; None before the producer is open."""
        producer = self._driver.state.producer
        return producer if producer != NO_PRODUCER else None

    @property
    def highest_produce_version(self) -> int:
        """Produce v12 means TV2 to the broker, so a TV1 transaction must stay below (row T16)."""
        return NO_LIMIT if self._transaction is None or self._transaction.tv2 else TV1_PRODUCE_VERSION

    def acquire(self) -> None:
        """Does nothing: InitProducerId has set the identity before any record."""

    def bump(self) -> bool:
        """Only the coordinator may raise a transactional producer's epoch."""
        return False

    # -- begin

    async def begin(self, committer: Committer | None) -> OpenTransaction:
        self._raise_if_broken()
        may_begin(self._driver.state)
        state = self._driver.state
        if state.phase is not Phase.READY:
            if not (state.tv2 or state.bumps):
                # No epoch fences requests that are still unanswered: the abort must come after them, to cover them.
                await self._sender.none_in_flight.wait()
            result = await self._driver.drive(Event.RECOVER, "recovering for the next transaction")
            if result.outcome is not Outcome.READY:
                raise self._lost(result, "recovering for the next transaction")
            self._repair_sequences()
            self._raise_if_broken()
        negotiated = self.link.negotiated_now()
        if negotiated is None:
            negotiated = await self._policy.run(self.link.negotiated, what="finding the transaction coordinator")
        else:
            await anyio.lowlevel.checkpoint_if_cancelled()
        if negotiated.tv2 and self._begin_delay.pause_s:
            await anyio.sleep_until(self._begin_delay.due(anyio.current_time()))
        self._begin_delay.began(anyio.current_time())
        self._driver.note(Begin(negotiated.tv2, negotiated.bumps))
        self._transaction = OpenTransaction(negotiated.tv2, committer)
        return self._transaction

    def include(self, transaction: OpenTransaction, partition: TopicPartition, batch: Batch) -> None:
        """A record of `partition` is in the buffer; under TV1 it waits until the coordinator knows the partition."""
        if partition in transaction.partitions:
            return
        transaction.partitions.add(partition)
        if transaction.tv2:
            self._driver.note(Event.WROTE)
            return
        batch.queue.withheld = True
        transaction.pending.add(partition)
        if not self._adding:
            self._begin_adding(transaction)

    def _begin_adding(self, transaction: OpenTransaction) -> None:
        self._adding = True
        self._added = anyio.Event()
        self._background.start_soon(self._add_partitions, transaction)

    async def _add_partitions(self, transaction: OpenTransaction) -> None:
        try:
            while transaction.pending and transaction.error is None:
                some = sorted(transaction.pending)

                async def attempt(some: list[TopicPartition] = some) -> None:
                    if transaction.error is not None:  # these must not become part of the next transaction
                        raise transaction.error
                    with UnknownOutcome(self._driver):
                        await self.link.add_partitions(self._driver.state.producer, some)

                await self._policy.run(attempt, what="adding partitions to the transaction")
                transaction.pending.difference_update(some)
                if transaction.over:
                    break
                for partition in some:
                    self.appender.accumulator.queues[partition].withheld = False
                self._sender.wake()
            if transaction.pending and transaction.error is not None:
                raise transaction.error  # these are never added, so their batches must not wait
        except KafkaError as error:
            transaction.fail(error)
            if not transaction.over:
                self.appender.accumulator.drop(transaction.error or error, resend_too=True)
        finally:
            self._adding = False
            self._added.set()
            following = self._transaction
            if following is not None and following is not transaction and following.pending:
                self._begin_adding(following)

    async def commit_offsets(
        self, transaction: OpenTransaction, group: GroupMetadata, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> None:
        link, group_id, tv2 = self.link, group.group_id, transaction.tv2
        if not tv2 and group_id not in transaction.groups:
            what = "adding offsets to the transaction"
            await self.ask_in(transaction, lambda producer: link.add_offsets(producer, group_id), what)
            transaction.groups.add(group_id)
        what = "sending offsets to the transaction"
        await self.ask_in(transaction, lambda producer: link.commit_offsets(producer, group, offsets, tv2=tv2), what)

    async def ask_in(self, transaction: OpenTransaction, ask: Callable[[Producer], Awaitable[None]], what: str) -> None:
        """Send a request of the transaction, with retries; after an error it cannot commit any more."""

        async def attempt() -> None:
            if transaction.error is not None:  # it must not become part of the next transaction
                raise transaction.error
            with UnknownOutcome(self._driver):
                await ask(self._driver.state.producer)

        try:
            await self._policy.run(attempt, what=what)
        except KafkaError as error:
            transaction.fail(error)
            raise transaction.error or error from error

    # -- end

    async def finish(self, transaction: OpenTransaction) -> None:
        """The block ended without an error: send everything and commit; a failure aborts."""
        try:
            await self._send_all(transaction)
            await self._commit(transaction)
            await anyio.lowlevel.checkpoint_if_cancelled()
            if self._driver.cancelled is not None:
                raise self._driver.cancelled
        except BaseException as error:
            await self.abort(transaction, error)
            raise

    async def _send_all(self, transaction: OpenTransaction) -> None:
        """Accept no more records, and return when all are acknowledged. Raises the transaction's error."""
        transaction.ending = True
        if transaction.requests_under_way:
            raise RuntimeError(
                "another task is still sending offsets or acknowledgements in this transaction: wait for it before the"
                " block ends"
            )
        began = anyio.current_time()
        self.appender.accumulator.flush()
        await transaction.tracker.wait()
        self._begin_delay.acknowledged(anyio.current_time() - began)
        if not self._driver.state.begun:
            await anyio.lowlevel.checkpoint()
        if transaction.error is not None:
            raise transaction.error

    async def _commit(self, transaction: OpenTransaction) -> None:
        """Commit, and raise for any outcome but COMMITTED."""
        result = await self._driver.drive(Event.COMMIT, "the commit", grace_s=ABORT_GRACE_S)
        if result.outcome is Outcome.COMMITTED:
            self._begin_delay.ended(anyio.current_time())
            self._close(transaction, committed=True)
            return
        error = self._lost(result, "the commit")
        if isinstance(error, OutcomeUnknownError):
            self._unknown_outcome = transaction
            self._close(transaction, committed=None)
        elif result.outcome is not Outcome.REJECTED:
            self._close(transaction, committed=False)
        raise error

    async def abort(self, transaction: OpenTransaction, cause: BaseException) -> None:
        """Abort within a few shielded seconds. Raises FencedError if a newer producer has the transactional id."""
        if transaction.over:
            return
        transaction.ending = True

        async def abort_within_grace() -> None:
            transaction.fail(AbortableError("the transaction was aborted"))
            try:
                await self._drop_records()
                result = await self._driver.drive(Event.ABORT, "the abort")
                if result.outcome in _BROKEN_OUTCOMES:
                    raise self._lost(result, "the abort")
            finally:
                if self._driver.state.phase is Phase.OPEN:  # the abort was not sent within the grace period
                    self._driver.note(Event.UNANSWERED)
                    self._driver.note(Event.ABORT)
                    self._driver.note(Event.GIVE_UP)
                self._close(transaction, committed=False)

        cancelled = await shielded(ABORT_GRACE_S, abort_within_grace)
        if self._driver.state.phase is Phase.STALE and self._driver.last is not None:
            cause.add_note(f"the abort was not confirmed: {self._driver.last}")
        if isinstance(cause, AbortableError | RecordRejectedError) and not cause.retriable:
            self._policy.warnings.aborted(self.transactional_id, cause)
        self._repair_sequences()
        if cancelled is not None:
            raise cancelled

    async def _drop_records(self) -> None:
        """Drop the transaction's records, and wait until none of its requests is unanswered."""
        dropped = AbortableError("the transaction was aborted before this record was sent")
        resending = any(queue.resend for queue in self.appender.accumulator.active.values())
        self.appender.accumulator.drop(dropped, resend_too=True)
        if self._adding:
            await self._added.wait()
        while True:
            resending |= any(queue.resend or queue.needs_epoch() for queue in self.appender.accumulator.queues.values())
            self.appender.accumulator.drop(dropped, resend_too=True)
            if not self._sender.in_flight:
                break
            await self._sender.none_in_flight.wait()  # the sender may have sent another request before this
        if resending:
            self._driver.note(Event.UNANSWERED)
        if self._sender.fatal is not None:
            self._break(self._sender.fatal)

    def _repair_sequences(self) -> None:
        """A sequence that will never be sent needs a new epoch; a broker before Kafka 2.5 cannot give it (KIP-360)."""
        state = self._driver.state
        if state.phase is Phase.READY and not state.tv2 and not state.bumps:
            broken = [
                str(queue.partition) for queue in self.appender.accumulator.queues.values() if queue.needs_epoch()
            ]
            if broken:
                self._break(
                    FatalError(
                        f"records for {', '.join(broken)} were not sent, and a broker before Kafka 2.5 cannot give this"
                        " producer a new epoch: open a new producer",
                        code=ErrorCode.UNSUPPORTED_VERSION,
                    )
                )

    def _close(self, transaction: OpenTransaction, *, committed: bool | None) -> None:
        """The transaction is over; consumers tied to it rewind unless it committed. None: the outcome is unknown."""
        if transaction.over:
            return
        transaction.end(committed)
        self.appender.accumulator.abandon()
        self._transaction = None
        for committer in transaction.committers:
            if committed is None:
                committer.progress.forget_positions()
            elif not committed:
                committer.progress.rewind()
