"""What goes into a share partition and what comes out of it (KIP-932)."""

from collections.abc import Sequence
from enum import IntEnum, StrEnum
from typing import NamedTuple

from fencepost.protocol.errors import ErrorCode


class Limits(NamedTuple):
    """The settings of a share group that its share partitions obey; they may change at any time."""

    max_in_flight: int = 2000
    """group.share.partition.max.record.locks: how many offsets lie from the start to the end offset."""
    delivery_count_limit: int = 5
    """group.share.delivery.count.limit: a record released after as many deliveries is not delivered again."""
    lock_ms: int = 30_000
    """group.share.record.lock.duration.ms: how long a member holds a record that it does not acknowledge."""
    renew: bool = True
    """share.renew.acknowledge.enable: whether members may extend their locks (KIP-1222)."""
    dead_letters: bool = False
    """Whether the group has a dead-letter topic, and share.version allows it (KIP-1191)."""


DELAY_MS_MAX = 366 * 24 * 3_600_000
"""The longest time for which a record is held back."""
HELD_STEP_MS = 100
"""A time until which a record is held back is rounded up to a multiple of this: so that those that members release
at about the same time end together, and are stored as one."""


def held_until(time_ms: int) -> int:
    """Until when a record is held back that is not to come before a time."""
    return -(-time_ms // HELD_STEP_MS) * HELD_STEP_MS


class AcquireMode(IntEnum):
    """How closely the greatest number of records is kept (KIP-1206); the numbers are those of ShareFetch."""

    BATCH_OPTIMIZED = 0
    """The last batch is acquired as a whole, even where that exceeds the greatest number."""
    RECORD_LIMIT = 1
    """Never more records than asked for."""


class AckType(IntEnum):
    """What a member says of a record; the numbers are those of ShareFetch and ShareAcknowledge."""

    GAP = 0
    """There is no record for the application at this offset: compacted away, or a control record."""
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class Fetched(NamedTuple):
    """What the log gave from `fetch_offset` on, in offset order; up to the last stable offset for read_committed."""

    fetch_offset: int
    """The offset that was asked for: the share partition's next fetch offset."""
    batches: Sequence[tuple[int, int]]
    """Base offset and last offset of each record batch, control batches included; the first may begin before."""
    aborted: Sequence[tuple[int, int]] = ()
    """Those batches, for read_committed, that an aborted transaction wrote; without its markers, which members
    acknowledge as gaps."""
    held: Sequence[tuple[int, int]] = ()
    """Offsets in order, with the time before which their records are not delivered for the first time."""


class Want(NamedTuple):
    """What a ShareFetch asks for."""

    max_records: int
    batch_size: int
    """The least size of the batches in which new records are acquired, where the bounds of record batches allow."""
    mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED


class Acquired(NamedTuple):
    """Records that a member now holds: AcquiredRecords of ShareFetch."""

    first_offset: int
    last_offset: int
    delivery_count: int


class AckBatch(NamedTuple):
    """AcknowledgementBatch of a request: one type for all its offsets, or one for each."""

    first_offset: int
    last_offset: int
    types: Sequence[int]
    delay_ms: int = 0
    """For how long what is released is held back."""


class DeadCause(StrEnum):
    """Why records go to the dead-letter topic, as their header says it (Kafka's `ShareGroupDLQManager`)."""

    LIMIT = "Offset delivery count exceeded the threshold."
    REJECTED = "Offset rejected by client."


class DeadLetters(NamedTuple):
    """Records to write to the dead-letter topic; they stay in flight until `SharePartition.archive`."""

    first_offset: int
    last_offset: int
    delivery_count: int
    cause: DeadCause


class Refused(Exception):
    """An acknowledgement that changed nothing: INVALID_RECORD_STATE, or INVALID_REQUEST for offsets never acquired."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error
