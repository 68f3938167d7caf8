"""`consumer.transactions()`: each committed transaction as one unit."""

from collections.abc import AsyncIterator

from fencepost.client.consumer.unit_reader import UnitReader
from fencepost.client.consumer.whole_transaction import WholeTransaction
from fencepost.client.key_value import K, V


class WholeTransactions(AsyncIterator[WholeTransaction[K, V]]):
    """What `Consumer.transactions()` returns. Asking for the next one says that the one before is done with."""

    def __init__(self, reader: UnitReader[K, V]) -> None:
        self._reader = reader

    def __repr__(self) -> str:
        return f"<WholeTransactions: {self.held_bytes} bytes held, {self.left_out} left out>"

    @property
    def left_out(self) -> int:
        """How many transactions were left out because they had begun before what was read (see the guide)."""
        return self._reader.left_out

    @property
    def held_bytes(self) -> int:
        """Bytes of batches that wait for their transaction to be complete."""
        return self._reader.held_bytes

    @property
    def spilled_bytes(self) -> int:
        """How much was ever written to the temporary file."""
        return self._reader.spilled_bytes

    async def __anext__(self) -> WholeTransaction[K, V]:
        return await self._reader.next()
