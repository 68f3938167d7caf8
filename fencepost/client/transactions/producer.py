"""The transactional producer for programs."""

from types import TracebackType
from typing import Any, Generic, Self

from fencepost.client.consumer.committer import Committer
from fencepost.client.consumer.consumer import Consumer, reader_of
from fencepost.client.consumer.reader import committer_in_hand
from fencepost.client.facade import delegate
from fencepost.client.key_value import K, V
from fencepost.client.producer.appender import Appender
from fencepost.client.transactions.lifecycle import TransactionManager
from fencepost.client.transactions.open_transaction import OpenTransaction
from fencepost.client.transactions.transaction import Transaction


class TransactionalProducer(Generic[K, V]):
    """A producer whose records count only in committed transactions; open it with `async with`.

    Opening it fences older producers of the same transactional id and aborts their open transactions (row T2). Raises
    FencedError, AuthorizationError, or FatalError (INVALID_TRANSACTION_TIMEOUT: over the broker's maximum).
    """

    def __init__(self, manager: TransactionManager) -> None:
        self.transactional_id = manager.transactional_id
        self._manager = manager
        self._appender = manager.appender

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.transactional_id!r}>"

    async def __aenter__(self) -> Self:
        await self._manager.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._manager.close()

    def transaction(self, *, consumer: Consumer[Any, Any] | None = None) -> "TransactionBlock[K, V]":
        """A transaction as an async context. Only one at a time.

        A `consumer` is tied to it from the start: on abort it rewinds to its last commit, also when
        `send_offsets` was not called. The default is the consumer whose batch this task processes.
        """
        return TransactionBlock(
            self._manager, reader_of(consumer).committer if consumer is not None else committer_in_hand()
        )

    reinitialise = delegate("_manager", TransactionManager.reinitialise)
    flush = delegate("_appender", Appender.flush)
    partitions_for = delegate("_appender", Appender.partitions_for)
    metrics = delegate("_appender", Appender.metrics)


class TransactionBlock(Generic[K, V]):
    """The result of `producer.transaction()`: begins, and commits at the end, or aborts on error and on cancel."""

    def __init__(self, manager: TransactionManager, committer: Committer | None) -> None:
        self._manager = manager
        self._committer = committer
        self._transaction: OpenTransaction | None = None

    def __repr__(self) -> str:
        return f"<block of a transaction of {self._manager.transactional_id!r}>"

    async def __aenter__(self) -> Transaction[K, V]:
        self._transaction = await self._manager.begin(self._committer)
        return Transaction(self._manager, self._transaction)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        transaction = self._transaction
        assert transaction is not None
        if error is None:
            await self._manager.finish(transaction)
        else:
            await self._manager.abort(transaction, error)
