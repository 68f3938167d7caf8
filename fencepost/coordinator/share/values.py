"""What the state of a share partition is, to the coordinator that keeps it and to those that use it (KIP-932)."""

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol

from fencepost.protocol.errors import ErrorCode

UNINITIALIZED = -1
"""A start offset that the partition's leader still has to find, by `share.auto.offset.reset`."""
NOT_HELD = -1
"""A time before which no record is held back."""


class DeliveryState(IntEnum):
    """The states of a record that are stored; the numbers are those of Kafka's StateBatch."""

    AVAILABLE = 0
    ACQUIRED = 1
    """Never stored: a record whose delivery is not settled is stored as AVAILABLE."""
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    """Between refused and written to the dead-letter topic (KIP-1191)."""
    ARCHIVED = 4
    TX_PENDING = 5
    """Never stored: what becomes of the record is in an open transaction (the number is that of KIP-1289's draft)."""


class ShareKey(NamedTuple):
    """One share partition: what one group has of one partition."""

    group_id: str
    topic_id: bytes
    partition: int


class StateBatch(NamedTuple):
    """The state of the records from `first_offset` to `last_offset`, both included."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int
    held_until_ms: int = NOT_HELD
    """When records that are AVAILABLE are delivered at the earliest, in ms since the epoch."""

    def add_to(self, batches: list["StateBatch"]) -> None:
        """Append it; neighbours alike are one."""
        if batches and batches[-1][1:] == (self.first_offset - 1, *self[2:]):
            batches[-1] = self._replace(first_offset=batches[-1].first_offset)
        else:
            batches.append(self)

    def shifted(self, by_ms: int) -> "StateBatch":
        """The same by another clock; it is held back."""
        return self._replace(held_until_ms=self.held_until_ms + by_ms)


class PendingBatch(NamedTuple):
    """What a producer's open transaction acknowledged: the state that it becomes if the transaction commits."""

    producer_id: int
    batch: StateBatch


class Outcome(NamedTuple):
    """Whether a request to the share coordinator succeeded."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


class InitialState(NamedTuple):
    """From where a group begins to consume a partition."""

    state_epoch: int
    start_offset: int


class StateUpdate(NamedTuple):
    """What a partition's leader stores of a share partition."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    """UNINITIALIZED: unchanged."""
    delivery_complete_count: int
    """How many records at or after the start offset are acknowledged or archived; -1: not known (KIP-1226)."""
    batches: Sequence[StateBatch]


def joined(updates: Sequence[StateUpdate]) -> StateUpdate:
    """Updates of one share partition, in the order in which they are to be stored, as one: neighbours alike are one."""
    if len(updates) == 1:
        return updates[0]
    batches: list[StateBatch] = []
    for update in updates:
        for batch in update.batches:
            batch.add_to(batches)
    start_offset = max(update.start_offset for update in updates)  # it never falls; UNINITIALIZED is below all
    return updates[-1]._replace(start_offset=start_offset, batches=batches)


class StoredState(NamedTuple):
    """What the share coordinator knows of a share partition."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    state_epoch: int = 0
    start_offset: int = UNINITIALIZED
    batches: tuple[StateBatch, ...] = ()
    pending: tuple[PendingBatch, ...] = ()
    """What open transactions acknowledged; `batches` has it as TX_PENDING."""


class StateSummary(NamedTuple):
    """As `StoredState`, without its batches."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = UNINITIALIZED
    delivery_complete_count: int = -1


class SharePersister(Protocol):
    """Where the states of share partitions are kept. Every answer rests on durable records only."""

    async def initialize(self, states: Mapping[ShareKey, InitialState]) -> Mapping[ShareKey, Outcome]:
        """Begin share partitions, or begin them again at a higher state epoch."""

    async def read(self, key: ShareKey, leader_epoch: int) -> StoredState:
        """The state of a share partition for its leader; older leaders are fenced from then on."""

    async def write(self, updates: Sequence[tuple[ShareKey, StateUpdate]]) -> Sequence[Outcome]:
        """Store what changed, in this order: a share partition may be there more than once.

        Refused with FENCED_STATE_EPOCH or FENCED_LEADER_EPOCH if another leader began since.
        """

    async def summaries(self, keys: Mapping[ShareKey, int]) -> Mapping[ShareKey, StateSummary]:
        """The summary of each; the values are leader epochs."""

    async def delete(self, keys: Iterable[ShareKey]) -> Mapping[ShareKey, Outcome]:
        """Forget share partitions."""
