"""One unit of `consumer.transactions()`: a committed transaction."""

from collections.abc import Callable, Iterator
from typing import Generic

from fencepost.client.consumer.consumed import ConsumerRecord
from fencepost.client.core.transaction_assembler import PLAIN, Piece, Unit
from fencepost.client.key_value import K, V
from fencepost.protocol.topics import TopicPartition


class WholeTransaction(Generic[K, V]):
    """One committed transaction, or the records of one batch outside of transactions.

    Iterating yields its records, partition by partition and in order within each. They are unpacked one batch at a
    time, so a large transaction does not fill the memory with objects. It is valid until the next one is read.
    """

    def __init__(self, records_of: Callable[[Piece], Iterator[ConsumerRecord[K, V]]], unit: Unit) -> None:
        self._records_of = records_of
        self._unit = unit

    def __repr__(self) -> str:
        where = ", ".join(map(str, self.partitions))
        return f"<WholeTransaction of producer {self.producer_id}: {self.size_bytes} bytes in {where}>"

    @property
    def producer_id(self) -> int:
        """The id of its producer; -1 for records outside of transactions."""
        return self._unit.producer_id

    @property
    def epoch(self) -> int:
        """The epoch of its records; under TV2 (producer id, epoch) names the transaction."""
        return self._unit.epoch

    @property
    def transactional(self) -> bool:
        """False for records that were written outside of transactions."""
        return self._unit.producer_id != PLAIN

    @property
    def merged(self) -> int:
        """The minimum number of transactions in it: above 1 only under TV1, whose log does not separate neighbours."""
        return self._unit.merged

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """The assigned partitions that it wrote to."""
        return tuple(dict.fromkeys(share.partition for share in self._unit.shares))

    @property
    def size_bytes(self) -> int:
        """The size of its batches as they were sent (compressed, if they were)."""
        return self._unit.size_bytes

    def __iter__(self) -> Iterator[ConsumerRecord[K, V]]:
        for share in self._unit.shares:
            for piece in share.pieces:
                yield from self._records_of(piece)
