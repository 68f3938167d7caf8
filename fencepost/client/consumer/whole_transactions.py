"""`consumer.transactions()`: each committed transaction as one unit."""

from collections.abc import AsyncIterator

from fencepost.client.consumer.unit_reader import UnitReader
from fencepost.client.consumer.whole_transaction import WholeTransaction
from fencepost.client.key_value import K, V


class WholeTransactions(AsyncIterator[WholeTransaction[K, V]]):
    """The result of `Consumer.transactions()`. Reading the next one means that the one before is processed."""

    def __init__(self, reader: UnitReader[K, V]) -> None:
        self._reader = reader

    def __repr__(self) -> str:
        return f"<WholeTransactions: {self.held_bytes} bytes held, {self.left_out} left out>"

    @property
    def left_out(self) -> int:
        """How many transactions were left out because they began before the start of reading (see the guide)."""
        return self._reader.left_out

    @property
    def held_bytes(self) -> int:
        """The size of batches whose transaction is not complete yet."""
        return self._reader.held_bytes

    @property
    def spilled_bytes(self) -> int:
        """How many bytes were written to the temporary file in all."""
        return self._reader.spilled_bytes

    async def __anext__(self) -> WholeTransaction[K, V]:
        return await self._reader.next()
