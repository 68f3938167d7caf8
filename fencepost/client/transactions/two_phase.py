"""The producer's share of a two-phase commit: prepared here, decided elsewhere, completed here (KIP-939, T22, T23).

READY --begin--> OPEN --prepare()--> PREPARED --complete(decided)--> READY
  ^                                     ^  |
  |                                     |  '-- decided for this identity: commit; for any other: abort
  '--- opened, nothing was open         '----- opened, and a predecessor left a transaction
"""

from fencepost.client.consumer.committer import Committer
from fencepost.client.core.txn_state import NO_PRODUCER, Complete, Event, Outcome, TakenOver
from fencepost.client.errors import AbortableError, FatalError
from fencepost.client.facade import delegate
from fencepost.client.key_value import K, V
from fencepost.client.transactions.lifecycle import TransactionManager
from fencepost.client.transactions.open_transaction import OpenTransaction, PreparedTransaction
from fencepost.client.transactions.producer import TransactionalProducer
from fencepost.protocol.errors import ErrorCode


class TwoPhaseManager(TransactionManager):
    """The transactions of one transactional id; an outside coordinator decides them once they are prepared."""

    two_phase = True
    prepared: PreparedTransaction | None = None
    """The transaction that waits for its outcome."""
    _unwritten = False

    async def complete(self, decided: PreparedTransaction | str | None) -> bool:
        """End the prepared transaction: commit it if `decided` names it, else abort it. Returns whether it committed.

        `decided` is the last decision that the outside coordinator stored, or None if it has none. Without a prepared
        transaction this does nothing. It may be called again after any error but FencedError, with the same decision.
        Raises ValueError, with nothing done, if the text of `decided` names no transaction: a mangled text must not
        abort what the outside coordinator has committed.
        """
        if decided is not None and not isinstance(decided, PreparedTransaction):
            decided = PreparedTransaction.parse(decided)
        if self.prepared is None:
            return False
        commit = decided == self.prepared
        # An empty transaction cannot commit; its abort bumps the epoch, so that the next one has another identity.
        as_commit = commit and not self._unwritten
        result = await self._driver.drive(Complete(as_commit), "completing the prepared transaction")
        if result.outcome not in (Outcome.COMMITTED, Outcome.ABORTED):
            raise self._lost(result, "completing the prepared transaction")
        self.prepared, self._unwritten = None, False
        self._settle(commit)
        return commit

    @property
    def _holder(self) -> tuple[int, int]:
        return self._driver.state.producer

    def _settle(self, commit: bool) -> None:
        """Close the transaction, if it began in this process, and notify its consumers."""
        transaction = self._transaction
        if transaction is None:
            return
        if not commit and transaction.error is None:
            transaction.fail(AbortableError("the decision was to abort the transaction"))
        self._close(transaction, committed=commit)

    async def _initialise(self) -> None:
        try:
            current, ongoing = await self._policy.run(
                self.link.take_over, what=f"taking over the transactional id {self.transactional_id!r}"
            )
        except FatalError as error:
            self._break(error)
            raise
        self.prepared = None if ongoing == NO_PRODUCER else PreparedTransaction(*ongoing)
        self._driver.note(TakenOver(current, self.prepared is not None))

    async def begin(self, committer: Committer | None) -> OpenTransaction:
        transaction = await super().begin(committer)
        if not transaction.tv2:
            self._driver.note(Event.ABORT)
            self._close(transaction, committed=False)
            raise FatalError(
                "two-phase commit needs transaction.version 2: earlier versions do not tell transactions apart",
                code=ErrorCode.UNSUPPORTED_VERSION,
            )
        return transaction

    async def prepare(self, transaction: OpenTransaction) -> PreparedTransaction:
        await self._send_all(transaction)
        self.prepared = PreparedTransaction(*self._holder)
        self._unwritten = not self._driver.state.begun
        self._driver.note(Event.PREPARE)
        return self.prepared

    async def finish(self, transaction: OpenTransaction) -> None:
        """The block ended without an error: complete a prepared transaction, commit any other."""
        if transaction.over:
            return  # the block has completed it itself
        if self.prepared is None:
            await super().finish(transaction)
        else:
            await self.complete(self.prepared)

    async def abort(self, transaction: OpenTransaction, cause: BaseException) -> None:
        """The block failed: before `prepare` that aborts the transaction, after it only `complete` ends it."""
        if self.prepared is None:
            await super().abort(transaction, cause)
        else:
            cause.add_note(f"the transaction {self.prepared} stays prepared: find the decision, then call complete()")


class TwoPhaseProducer(TransactionalProducer[K, V]):
    """A transactional producer whose commits an outside coordinator decides; open it with `async with`.

    Opening it fences older producers of the transactional id and keeps their open transaction: `prepared` names
    it, and `complete` ends it. Until then no other can begin.
    """

    _manager: TwoPhaseManager

    def __init__(self, manager: TwoPhaseManager) -> None:
        super().__init__(manager)

    @property
    def prepared(self) -> PreparedTransaction | None:
        """The transaction that waits for its outcome."""
        return self._manager.prepared

    @property
    def identity(self) -> str:
        """This producer's own "PRODUCER_ID:EPOCH": it grows each time a producer opens the transactional id.

        Store it with the decision, and let only its owner decide. So a zombie producer cannot decide for a transaction
        that its successor has ended.
        """
        assert self._manager.current is not None, "the producer is not open"
        return str(PreparedTransaction(*self._manager.current))

    complete = delegate("_manager", TwoPhaseManager.complete)
