"""The transactional producer: what happens inside `async with producer.transaction()` counts as a whole or not at all.

NEW --init--> READY --begin--> OPEN --commit/abort answered--> READY
                ^                |--abort without an answer---> STALE --init with (id, epoch)--> READY
                |                |--commit without an answer--> UNKNOWN --reinitialise()--> READY
                |                |--fenced or no right--------> BROKEN
                |                '--prepare()--> PREPARED --complete() answered--> READY    (two_phase.py)
"""

import enum
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING

import trio

from fencepost.client.accumulator import Batch
from fencepost.client.background import Background
from fencepost.client.cluster import Cluster
from fencepost.client.config import TransactionalProducerConfig
from fencepost.client.errors import (
    AbortableError,
    AuthorizationError,
    FatalError,
    FencedError,
    KafkaError,
    OutcomeUnknown,
)
from fencepost.client.producer import NO_LIMIT, BaseProducer
from fencepost.client.sender import Sender
from fencepost.client.transaction import Doubt, Transaction, TransactionContext
from fencepost.client.txn_requests import NO_PRODUCER, CommittedOffset, GroupMetadata, TransactionLink, abortable
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition

if TYPE_CHECKING:
    from fencepost.client.consumer import Consumer
    from fencepost.client.two_phase import PreparedTransaction

ABORT_GRACE_S = 5.0
TV1_PRODUCE_VERSION = 11


class State(enum.Enum):
    """Where a transactional producer stands; the diagram is at the top of the module."""

    NEW = "new"
    READY = "ready"
    OPEN = "open"
    STALE = "stale"
    UNKNOWN = "unknown"
    PREPARED = "prepared"
    BROKEN = "broken"


class TransactionalProducer(BaseProducer):
    """A producer whose records count only in committed transactions; open it with `async with`.

    Opening it fences older producers of the same transactional id and aborts what they left open (row T2).
    """

    def __init__(
        self,
        cluster: Cluster,
        background: Background,
        transactional_id: str,
        config: TransactionalProducerConfig,
        purpose: str,
    ) -> None:
        super().__init__(cluster, config, purpose)
        self.transactional_id = transactional_id
        self.current: tuple[int, int] | None = None
        self._timeout_ms = config.transaction_timeout_ms
        self._background = background
        self._link = TransactionLink(cluster, transactional_id, purpose)
        self._scope: trio.CancelScope | None = None
        self._state = State.NEW
        self._broken_by: KafkaError | None = None
        self._transaction: Transaction | None = None
        self._adding = False
        self._added = trio.Event()

    # -- life

    async def __aenter__(self) -> "TransactionalProducer":
        self._sender = Sender(self._cluster, self._accumulator, self, self._config, self._purpose)
        await self._open()
        self._scope = self._background.start_soon(self._sender.run)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._sender is not None
        assert self._scope is not None
        self._sender.fail(KafkaError("the producer was closed"))
        self._scope.cancel()
        await trio.lowlevel.cancel_shielded_checkpoint()

    async def reinitialise(self) -> None:
        """After OutcomeUnknown: settle what is open and go on under a new epoch.

        Raises FencedError when a newer producer has taken the transactional id meanwhile (row P6).
        """
        if self._state in (State.OPEN, State.PREPARED):
            raise RuntimeError("a transaction is open")
        await self._initialise(self.current or NO_PRODUCER)

    def transaction(self, *, consumer: "Consumer | None" = None) -> TransactionContext:
        """A transaction as an async context. Only one at a time.

        A `consumer` is tied to it from the start: on abort it goes back to where it last committed, also when
        `send_offsets` was not reached. Without one, that is the consumer whose batch this task works on.
        """
        from fencepost.client.consumer import in_hand  # here: a producer alone needs no consumer

        return TransactionContext(self, consumer if consumer is not None else in_hand())

    async def _open(self) -> None:
        await self._initialise(NO_PRODUCER)

    async def _prepare(self, transaction: Transaction) -> "PreparedTransaction":
        raise RuntimeError("only a producer of Client.two_phase_producer() can prepare a transaction")

    async def _initialise(self, producer: tuple[int, int]) -> None:
        try:
            self.current = await self._cluster.policy.run(
                lambda: self._link.initialise(self._timeout_ms, producer),
                what=f"initialising the transactional id {self.transactional_id!r}",
            )
        except FatalError as error:
            self._break(error)
            raise
        self._state = State.READY

    def _break(self, error: KafkaError) -> None:
        self._state = State.BROKEN
        self._broken_by = error
        if self._sender is not None:
            self._sender.fail(error)

    # -- what the sender asks of an identity

    @property
    def highest_produce_version(self) -> int:
        """Produce v12 means TV2 to the broker, so a TV1 transaction must stay below (row T16)."""
        return NO_LIMIT if self._transaction is None or self._transaction.tv2 else TV1_PRODUCE_VERSION

    def acquire(self) -> None:
        """The id comes from `_initialise` only; until then nothing can have been handed in."""

    def bump(self) -> bool:
        """Only the coordinator may raise a transactional producer's epoch."""
        return False

    # -- begin

    async def _begin(self, consumer: "Consumer | None") -> Transaction:
        match self._state:
            case State.NEW:
                raise RuntimeError("the producer is not open: use it with `async with`")
            case State.OPEN:
                raise RuntimeError("a transaction is already open on this producer")
            case State.PREPARED:
                raise RuntimeError("a prepared transaction waits for its outcome: call complete() first")
            case State.UNKNOWN:
                raise OutcomeUnknown("the last commit's outcome is unknown: call reinitialise() first")
            case State.BROKEN:
                assert self._broken_by is not None
                raise self._broken_by
            case State.STALE:
                await self._initialise(self.current or NO_PRODUCER)
            case State.READY:
                await trio.lowlevel.checkpoint()
        tv2 = await self._cluster.policy.run(self._link.speaks_tv2, what="finding the transaction coordinator")
        self._transaction = Transaction(self, tv2, consumer)
        self._state = State.OPEN
        return self._transaction

    def _include(self, transaction: Transaction, partition: TopicPartition, batch: Batch) -> None:
        """A record of `partition` is in the buffer; under TV1 it waits until the coordinator knows the partition."""
        if partition in transaction.partitions:
            return
        transaction.partitions.add(partition)
        if transaction.tv2:
            transaction.started = True
            return
        batch.queue.muted = True
        transaction.pending.add(partition)
        if not self._adding:
            self._adding = True
            self._added = trio.Event()
            self._background.start_soon(self._add_partitions, transaction)

    async def _add_partitions(self, transaction: Transaction) -> None:
        assert self._sender is not None
        try:
            while transaction.pending and transaction.error is None:
                some = sorted(transaction.pending)

                async def attempt(some: list[TopicPartition] = some) -> None:
                    assert self.current is not None
                    transaction.started = True
                    with Doubt(transaction):
                        await self._link.add_partitions(self.current, some)

                await self._cluster.policy.run(attempt, what="adding partitions to the transaction")
                transaction.pending.difference_update(some)
                for partition in some:
                    self._accumulator.queues[partition].muted = False
                self._sender.wake()
        except KafkaError as error:
            transaction.fail(error)
            self._accumulator.drop(transaction.error or error, resend_too=True)
        finally:
            self._adding = False
            self._added.set()

    async def _commit_offsets(
        self, transaction: Transaction, group: GroupMetadata, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> None:
        async def add() -> None:
            assert self.current is not None
            transaction.started = True
            with Doubt(transaction):
                await self._link.add_offsets(self.current, group.group_id)

        async def commit() -> None:
            assert self.current is not None
            transaction.started = True
            with Doubt(transaction):
                await self._link.commit_offsets(self.current, group, offsets, tv2=transaction.tv2)

        try:
            if not transaction.tv2 and group.group_id not in transaction.groups:
                await self._cluster.policy.run(add, what="adding offsets to the transaction")
                transaction.groups.add(group.group_id)
            await self._cluster.policy.run(commit, what="sending offsets to the transaction")
        except KafkaError as error:
            transaction.fail(error)
            raise transaction.error or error from error

    # -- end

    async def _finish(self, transaction: Transaction) -> None:
        """The block ended well: send everything, commit; what prevents it aborts."""
        try:
            await self._send_all(transaction)
            if transaction.started:
                await self._background.finish(lambda: self._commit(transaction), ABORT_GRACE_S)
            else:
                self._close(transaction, State.READY)
        except BaseException as error:
            await self._abort(transaction, error)
            raise

    async def _send_all(self, transaction: Transaction) -> None:
        """Take nothing more, and return when everything is acknowledged; raises what keeps it from being so."""
        transaction.ending = True
        if transaction.offsets_under_way:
            raise RuntimeError("another task still sends offsets in this transaction")
        self._accumulator.flush()
        await transaction.tracker.wait()
        if transaction.error is not None:
            raise transaction.error

    async def _commit(self, transaction: Transaction) -> None:
        """EndTxn(commit) until it is answered. Until then the outcome is unknown, and the state says so."""
        assert self.current is not None
        producer, doubt = self.current, Doubt(transaction)

        async def attempt() -> tuple[int, int]:
            with doubt:
                return await self._link.end(producer, commit=True, tv2=transaction.tv2)

        self._state = State.UNKNOWN
        try:
            self.current = await self._cluster.policy.run(attempt, what="the commit")
        except (KafkaError, trio.Cancelled) as error:
            if doubt.arose:
                self._close(transaction, State.UNKNOWN, known=False)
                code = error.code if isinstance(error, KafkaError) else None
                raise OutcomeUnknown("a commit was sent and not answered", code=code, api="EndTxn") from error
            self._state = State.OPEN
            if isinstance(error, KafkaError):
                await self._refused(error)
            raise
        # A lost attempt may still arrive: TV2 has bumped the epoch past it, TV1 has to do so now (row T7).
        stale = not transaction.tv2 and transaction.doubtful
        for consumer, offsets in transaction.offsets:
            consumer.committed_in_transaction(offsets)
        self._close(transaction, State.STALE if stale else State.READY)

    async def _refused(self, error: KafkaError) -> None:
        """A commit was refused for good: find out whether somebody newer is there, or only the time was over."""
        if isinstance(error, AuthorizationError):
            self._break(error)
            raise error
        if not isinstance(error, FencedError) and error.code is not ErrorCode.INVALID_TXN_STATE:
            raise abortable(error)
        assert self.current is not None
        await self._initialise(self.current)
        self._state = State.STALE
        raise AbortableError(
            "the coordinator has aborted the transaction, perhaps because it stood open for longer than its timeout",
            code=error.code,
            api=error.api,
            node=error.node,
        ) from error

    async def _abort(self, transaction: Transaction, cause: BaseException) -> None:
        """Take everything back, within a few shielded seconds. Raises FencedError when that is what it finds."""
        if transaction.over:
            return
        transaction.ending = True
        with trio.CancelScope(shield=True, deadline=trio.current_time() + ABORT_GRACE_S):
            try:
                transaction.fail(AbortableError("the transaction was aborted"))
                await self._take_back(transaction)
            except (FencedError, AuthorizationError) as error:
                self._break(error)
                self._close(transaction, State.BROKEN)
                raise
            except KafkaError as error:
                cause.add_note(f"the abort was not confirmed: {error}")
        if not transaction.over:
            self._close(transaction, State.BROKEN if self._state is State.BROKEN else State.STALE)

    async def _take_back(self, transaction: Transaction) -> None:
        assert self._sender is not None
        dropped = AbortableError("the transaction was aborted before this record was sent")
        resending = any(queue.resend for queue in self._accumulator.active.values())
        self._accumulator.drop(dropped, resend_too=True)
        if self._adding:
            await self._added.wait()
        await self._sender.quiet.wait()
        resending |= any(queue.resend or queue.gap or queue.restart for queue in self._accumulator.queues.values())
        self._accumulator.drop(dropped, resend_too=True)
        if self._sender.fatal is not None:
            self._break(self._sender.fatal)
        if self._state is State.BROKEN:
            self._close(transaction, State.BROKEN)
            return
        if self._state is State.STALE or not transaction.started:
            self._close(transaction, self._state if self._state is State.STALE else State.READY)
            return
        await self._end_with_abort(transaction, resending)

    async def _end_with_abort(self, transaction: Transaction, doubtful: bool) -> None:
        assert self.current is not None
        producer = self.current

        async def attempt() -> tuple[int, int]:
            with Doubt(transaction):
                return await self._link.end(producer, commit=False, tv2=transaction.tv2)

        try:
            self.current = await self._cluster.policy.run(attempt, what="the abort")
        except FatalError as error:
            if error.code is not ErrorCode.INVALID_TXN_STATE:
                raise
            doubtful = True  # nothing was open any more; a new epoch makes sure of it
        doubtful |= transaction.doubtful
        if doubtful and not (transaction.tv2 and self.current != producer):
            await self._initialise(self.current)
        self._close(transaction, State.READY)

    def _close(self, transaction: Transaction, state: State, *, known: bool = True) -> None:
        """The transaction is over; consumers tied to it go back unless it committed."""
        if transaction.over:
            return
        transaction.over = True
        self._accumulator.abandon()
        if state is not State.BROKEN:
            self._state = state
        self._transaction = None
        committed = known and transaction.error is None and state is not State.BROKEN
        for consumer in transaction.consumers:
            if not known:
                consumer.forget_positions()
            elif not committed:
                consumer.rewind()
