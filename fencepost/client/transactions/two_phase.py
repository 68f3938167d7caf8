"""The producer's share of a two-phase commit: prepared here, decided elsewhere, completed here (KIP-939, T22, T23).

READY --begin--> OPEN --prepare()--> PREPARED --complete(decided)--> READY
  ^                                     ^  |
  |                                     |  '-- the same identity was decided for: commit; anything else: abort
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
    """A transactional id whose transactions are decided elsewhere once they are prepared."""

    two_phase = True
    prepared: PreparedTransaction | None = None
    """The transaction that waits for its outcome."""
    _unwritten = False

    async def complete(self, decided: PreparedTransaction | str | None) -> bool:
        """End what is prepared: commit it if it is what was `decided`, abort it otherwise. Whether it committed.

        `decided` is the last decision that the outside coordinator remembers, or None for none at all. Without a
        prepared transaction there is nothing to do. May be called again after any error but FencedError; the decision
        cannot change on the way. Raises ValueError, with nothing done, if the text of `decided` names no transaction:
        to take a mangled text for another transaction's would abort what was committed elsewhere.
        """
        if decided is not None and not isinstance(decided, PreparedTransaction):
            decided = PreparedTransaction.parse(decided)
        if self.prepared is None:
            return False
        commit = decided == self.prepared
        # What nothing was written in cannot commit; its abort bumps the epoch, so that the next one looks different.
        as_commit = commit and not self._unwritten
        told = await self._driver.drive(Complete(as_commit), "completing the prepared transaction")
        if told.outcome not in (Outcome.COMMITTED, Outcome.ABORTED):
            raise self._lost(told, "completing the prepared transaction")
        self.prepared, self._unwritten = None, False
        self._settle(commit)
        return commit

    @property
    def _holder(self) -> tuple[int, int]:
        return self._driver.state.producer

    def _settle(self, commit: bool) -> None:
        """Tell the transaction of this process, where it was begun here, and its consumers."""
        transaction = self._transaction
        if transaction is None:
            return
        if not commit and transaction.error is None:
            transaction.fail(AbortableError("the decision was to abort the transaction"))
        self._close(transaction, committed=commit)

    async def _initialise(self) -> None:
        try:
            current, ongoing = await self._policy.run(
                self._link.take_over, what=f"taking over the transactional id {self.transactional_id!r}"
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
        """The block ended well: what was prepared in it is decided, what was not commits as always."""
        if transaction.over:
            return  # the block has completed it itself
        if self.prepared is None:
            await super().finish(transaction)
        else:
            await self.complete(self.prepared)

    async def abort(self, transaction: OpenTransaction, cause: BaseException) -> None:
        """The block failed: before `prepare` that decides, after it only `complete` does."""
        if self.prepared is None:
            await super().abort(transaction, cause)
        else:
            cause.add_note(f"the transaction {self.prepared} stays prepared: find the decision, then call complete()")


class TwoPhaseProducer(TransactionalProducer[K, V]):
    """A transactional producer whose commits somebody else decides; open it with `async with`.

    Opening it fences older producers of the transactional id and keeps what they left open: `prepared` tells which
    transaction that is, and `complete` ends it. Until then no other can begin.
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
        """This producer's own "PRODUCER_ID:EPOCH": it grows with each that opens the transactional id.

        Store it beside the decision, and let only its owner decide: so a producer that was taken for dead and wakes up
        cannot decide for a transaction that its successor has ended.
        """
        assert self._manager.current is not None, "the producer is not open"
        return str(PreparedTransaction(*self._manager.current))

    complete = delegate("_manager", TwoPhaseManager.complete)
