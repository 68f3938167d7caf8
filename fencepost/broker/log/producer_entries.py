"""The state of one producer on a partition, and how its next batch changes that state. Immutable values."""

from typing import NamedTuple

from fencepost.protocol.batch_header import TRANSACTIONAL_BIT, BatchHeader
from fencepost.protocol.sequence import NO_SEQUENCE, advance, continued

BATCHES_KEPT = 5
"""Row 6 of section 0: a producer may have five requests in flight, so it may repeat five batches."""

NO_EPOCH = -1
NO_OFFSET = -1


class BatchMetadata(NamedTuple):
    """One batch of the duplicate window."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_sequence(self) -> int:
        """Sequence of its first record; sequences wrap around."""
        if self.last_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return advance(self.last_sequence, -self.offset_delta)

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerEntry(NamedTuple):
    """The state of one producer on a partition; immutable."""

    producer_id: int
    epoch: int
    coordinator_epoch: int
    last_timestamp_ms: int
    txn_first_offset: int
    """First offset of the open transaction, -1 if none is open."""
    batches: tuple[BatchMetadata, ...]
    """The last batches of this epoch, oldest first."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


def following(entry: ProducerEntry, header: BatchHeader, base_offset: int) -> ProducerEntry | None:
    """The entry after a batch that continues its producer's last batch, with the same epoch and transaction state.

    This is the fast path for the usual batch. None decides nothing: the batch may begin a transaction, be a duplicate
    or be invalid, and `ProducerStates` checks it by the rules.
    """
    _, _, _, _, _, attributes, delta, _, timestamp_ms, _, epoch, sequence, _ = header
    producer_id, known_epoch, coordinator_epoch, _, txn_first_offset, batches = entry
    if epoch != known_epoch or epoch < 0 or not batches:
        return None
    last_sequence = continued(batches[-1].last_sequence, sequence, delta)
    if last_sequence < 0 or (txn_first_offset >= 0) != bool(attributes & TRANSACTIONAL_BIT):
        return None
    for batch in batches:
        if batch.last_sequence == last_sequence:  # after a wrap-around it may equal one of the last five
            return None
    batch = BatchMetadata(last_sequence, base_offset + delta, delta, timestamp_ms)
    batches = (*batches[1 - BATCHES_KEPT :], batch)
    return ProducerEntry(producer_id, epoch, coordinator_epoch, timestamp_ms, txn_first_offset, batches)


def with_batch(entry: ProducerEntry | None, header: BatchHeader, base_offset: int) -> ProducerEntry:
    """The entry after any accepted data batch."""
    delta = header.last_offset_delta
    epoch = header.producer_epoch
    timestamp_ms = header.max_timestamp
    batch = BatchMetadata(header.last_sequence, base_offset + delta, delta, timestamp_ms)
    first_offset, coordinator_epoch = NO_OFFSET, NO_EPOCH
    batches: tuple[BatchMetadata, ...] = (batch,)
    if entry is not None:
        first_offset, coordinator_epoch = entry.txn_first_offset, entry.coordinator_epoch
        if entry.epoch == epoch:
            batches = (*entry.batches[1 - BATCHES_KEPT :], batch)
    if first_offset < 0 and header.is_transactional:
        first_offset = base_offset
    return ProducerEntry(header.producer_id, epoch, coordinator_epoch, timestamp_ms, first_offset, batches)
