"""What a read_committed reader leaves out of a fetch: markers, and the batches of aborted transactions (row I2)."""

from collections.abc import Iterable

from fencepost.protocol.batch_header import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader, Buffer
from fencepost.protocol.control_records import ControlType, control_type


class AbortedFilter:
    """Decides batch by batch, in offset order, whether an application may see what one fetch brought.

    `aborted` is the fetched partition's list of (producer id, first offset of the aborted transaction), in any order;
    None, as brokers answer to read_uncommitted, leaves only the control batches out. A filter belongs to one answer:
    the next one comes with a list of its own, which names again what is still in the middle.
    """

    def __init__(self, aborted: Iterable[tuple[int, int]] | None) -> None:
        self._to_come = sorted(
            ((first_offset, producer_id) for producer_id, first_offset in aborted or ()), reverse=True
        )
        self._aborted: set[int] = set()

    def admits(self, header: BatchHeader, buffer: Buffer, start: int) -> bool:
        """Whether the batch at `start` of `buffer` is to be read; to be called once per batch, none left out.

        Readers move on to `header.next_offset` either way. Raises CorruptBatch for a control batch without a type.
        """
        while self._to_come and self._to_come[-1][0] <= header.last_offset:
            self._aborted.add(self._to_come.pop()[1])
        attributes = header.attributes
        if attributes & CONTROL_BIT:
            if header.producer_id in self._aborted and control_type(buffer, start, header) is ControlType.ABORT:
                self._aborted.discard(header.producer_id)
            return False
        return not (attributes & TRANSACTIONAL_BIT and header.producer_id in self._aborted)
