"""What the share coordinator decides for one share partition: the rules of Kafka's ShareCoordinatorShard. Pure.

`partitions` is how many partitions the topic of the share partition has now; None if no topic has its id.
"""

from typing import Never, TypeAlias, TypeVar

from fencepost.coordinator.decision import Decision
from fencepost.coordinator.share.batches import combine
from fencepost.coordinator.share.records import NOT_KNOWN, Pending, Removed, ShareRecord, Snapshot, Update
from fencepost.coordinator.share.state import ShareShardState, ShareState
from fencepost.coordinator.share.values import (
    UNINITIALIZED,
    DeliveryState,
    InitialState,
    Outcome,
    ShareKey,
    StateBatch,
    StateSummary,
    StateUpdate,
    StoredState,
)
from fencepost.protocol.errors import ErrorCode

ReplyT = TypeVar("ReplyT")
Decided: TypeAlias = Decision[ShareRecord, ReplyT, Never]

BATCHES_MAX = 20_000
"""The most batches of one share partition: twice as many as records that may be in flight. A snapshot of them fits in
one batch of the log (20 bytes each, 33 with a time, of 1 MiB)."""

_NEGATIVE_PARTITION = "The partition id cannot be a negative number."
_NEGATIVE_LEADER_EPOCH = "The leader epoch cannot be a negative number."
_NEGATIVE_STATE_EPOCH = "The state epoch cannot be a negative number."
_WRITE_UNINITIALIZED = "Write operation on uninitialized share partition not allowed."
_READ_UNINITIALIZED = "Read operation on uninitialized share partition not allowed."
FENCED_LEADER = Outcome(
    ErrorCode.FENCED_LEADER_EPOCH, "The leader epoch in the request is older than the epoch on the broker."
)
FENCED_STATE = Outcome(
    ErrorCode.FENCED_STATE_EPOCH, "The coordinator rejected the request because the state epoch did not match."
)
NO_PARTITION = Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
DONE = Outcome()


def _invalid(message: str) -> Outcome:
    return Outcome(ErrorCode.INVALID_REQUEST, message)


def _exists(key: ShareKey, partitions: int | None) -> bool:
    return partitions is not None and key.partition < partitions


def initialize(
    state: ShareShardState, key: ShareKey, wanted: InitialState, partitions: int | None, now_ms: int
) -> Decided[Outcome]:
    """Begin a share partition, or begin it again (initializeState, maybeGetInitializeStateError).

    Each beginning has a higher state epoch, so the same one is a repeated request, and changes nothing: it may be late,
    and more is stored by now. The leader epoch and batches are those of a new one; leaders that were fenced before stay
    fenced. What open transactions acknowledged is void: the tombstone says so, also where the log before it is pruned.
    """
    if key.partition < 0:
        return Decision(_invalid(_NEGATIVE_PARTITION))
    if wanted.state_epoch < 0:
        return Decision(_invalid(_NEGATIVE_STATE_EPOCH))
    share = state.shares.get(key)
    if share is not None and share.newest_state_epoch > wanted.state_epoch:
        return Decision(FENCED_STATE)
    if not _exists(key, partitions):
        return Decision(NO_PARTITION)
    if share is not None and share.newest_state_epoch == wanted.state_epoch:
        return Decision(DONE)
    begun = Snapshot(
        key,
        snapshot_epoch=0 if share is None else share.snapshot_epoch + 1,
        state_epoch=wanted.state_epoch,
        leader_epoch=0,
        start_offset=wanted.start_offset,
        delivery_complete_count=NOT_KNOWN if wanted.start_offset == UNINITIALIZED else 0,
        created_ms=now_ms,
        written_ms=now_ms,
        batches=(),
    )
    return Decision(DONE, (Removed(key), begun) if state.pending.of(key) else (begun,))


def read(
    state: ShareShardState,
    key: ShareKey,
    leader_epoch: int,
    partitions: int | None,
    updates_per_snapshot: float,
    now_ms: int,
) -> Decided[StoredState]:
    """The state for a leader, which fences older ones from then on (readStateAndMaybeUpdateLeaderEpoch)."""
    share = _read(state, key, leader_epoch, partitions)
    if isinstance(share, Outcome):
        return Decision(StoredState(*share))
    pending = state.pending.of(key)
    undecided = [each.batch._replace(delivery_state=DeliveryState.TX_PENDING) for each in pending]
    stored = StoredState(
        state_epoch=share.state_epoch,
        start_offset=share.start_offset,
        batches=combine((*share.batches, *undecided), share.start_offset) if pending else share.batches,
        pending=pending,
    )
    if share.newest_leader_epoch == leader_epoch:
        return Decision(stored)
    unchanged = StateUpdate(share.state_epoch, leader_epoch, share.start_offset, share.delivery_complete_count, ())
    return Decision(stored, (_changed(key, share, unchanged, leader_epoch, updates_per_snapshot, now_ms),))


def _read(state: ShareShardState, key: ShareKey, leader_epoch: int, partitions: int | None) -> ShareState | Outcome:
    """The share partition to read, or why it is not read (maybeGetReadStateError)."""
    if key.partition < 0:
        return _invalid(_NEGATIVE_PARTITION)
    if leader_epoch < 0:
        return _invalid(_NEGATIVE_LEADER_EPOCH)
    share = state.shares.get(key)
    if share is None:
        return _invalid(_READ_UNINITIALIZED)
    if share.newest_leader_epoch > leader_epoch:
        return FENCED_LEADER
    return share if _exists(key, partitions) else NO_PARTITION


def write(
    state: ShareShardState,
    key: ShareKey,
    update: StateUpdate,
    partitions: int | None,
    updates_per_snapshot: float,
    now_ms: int,
) -> Decided[Outcome]:
    """Store what changed (writeState). The epochs of the stored state stay as they are."""
    share = _written(state, key, update, partitions)
    if isinstance(share, Outcome):
        return Decision(share)
    return Decision(DONE, (_changed(key, share, update, share.leader_epoch, updates_per_snapshot, now_ms),))


def write_in_transaction(
    state: ShareShardState, key: ShareKey, update: StateUpdate, partitions: int | None, producer_id: int
) -> Decided[Outcome]:
    """Store what becomes of records if a transaction commits; its marker decides.

    All else of the state stays as it is: start offset, leader epoch and delivery complete count of `update` are not
    stored. Without batches nothing is: the answer to a repeated request waits for what the first one wrote.
    """
    share = _written(state, key, update, partitions)
    if isinstance(share, Outcome):
        return Decision(share)
    batches = tuple(update.batches)
    if not batches:
        return Decision(DONE)
    changed = Update(key, share.snapshot_epoch, update.leader_epoch, UNINITIALIZED, NOT_KNOWN, batches)
    return Decision(DONE, (Pending(producer_id, changed),))


def _written(
    state: ShareShardState, key: ShareKey, update: StateUpdate, partitions: int | None
) -> ShareState | Outcome:
    """The share partition to change, or why it is not changed (maybeGetWriteStateError).

    Batches that Kafka fails on with an unexpected error are INVALID_REQUEST. Kafka lets a newer state epoch write. Here
    it is that of a state that is deleted.
    """
    if key.partition < 0:
        return _invalid(_NEGATIVE_PARTITION)
    if update.leader_epoch < 0:
        return _invalid(_NEGATIVE_LEADER_EPOCH)
    if update.state_epoch < 0:
        return _invalid(_NEGATIVE_STATE_EPOCH)
    share = state.shares.get(key)
    if share is None:
        return _invalid(_WRITE_UNINITIALIZED)
    if share.newest_leader_epoch > update.leader_epoch:
        return FENCED_LEADER
    if share.newest_state_epoch != update.state_epoch:
        return FENCED_STATE
    if not _exists(key, partitions):
        return NO_PARTITION
    if any(not 0 <= batch.first_offset <= batch.last_offset for batch in update.batches):
        return _invalid("A state batch has a negative first offset, or ends before it begins.")
    if len(update.batches) + share.batches_at_most <= BATCHES_MAX:
        return share
    combined = combine((*share.batches, *update.batches), max(update.start_offset, share.start_offset))
    if len(combined) <= BATCHES_MAX:
        return share
    return Outcome(ErrorCode.POLICY_VIOLATION, f"A share partition can have {BATCHES_MAX} state batches at most.")


def _changed(
    key: ShareKey, share: ShareState, update: StateUpdate, leader_epoch: int, updates_per_snapshot: float, now_ms: int
) -> Update | Snapshot:
    """The record of a change: an update, or after enough of them a snapshot (generateShareStateRecord).

    The start offset never falls. The delivery complete count belongs to a start offset: that of an older one does not
    count, and of two for the same the higher one does (KIP-1226).
    """
    start_offset = max(update.start_offset, share.start_offset)
    complete = update.delivery_complete_count
    if update.start_offset == share.start_offset:
        complete = max(complete, share.delivery_complete_count)
    elif update.start_offset < share.start_offset:
        complete = share.delivery_complete_count
    if share.updates < updates_per_snapshot:
        changed: tuple[StateBatch, ...] = combine(update.batches, start_offset)
        return Update(key, share.snapshot_epoch, leader_epoch, start_offset, complete, changed)
    return _snapshot(key, share, now_ms)._replace(
        leader_epoch=leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=complete,
        created_ms=now_ms,
        batches=combine((*share.batches, *update.batches), start_offset),
    )


def _snapshot(key: ShareKey, share: ShareState, now_ms: int) -> Snapshot:
    """A snapshot of a share partition as it is."""
    return Snapshot(
        key,
        snapshot_epoch=share.snapshot_epoch + 1,
        state_epoch=share.state_epoch,
        leader_epoch=share.leader_epoch,
        start_offset=share.start_offset,
        delivery_complete_count=share.delivery_complete_count,
        created_ms=share.created_ms,
        written_ms=now_ms,
        batches=share.batches,
    )


def summarize(state: ShareShardState, key: ShareKey, partitions: int | None) -> Decided[StateSummary]:
    """The summary; of a share partition that is not initialized that of an empty one (readStateSummary).

    Any leader epoch will do.
    """
    if key.partition < 0:
        return Decision(StateSummary(*_invalid(_NEGATIVE_PARTITION)))
    if not _exists(key, partitions):
        return Decision(StateSummary(*NO_PARTITION))
    share = state.shares.get(key)
    if share is None:
        return Decision(StateSummary())
    return Decision(
        StateSummary(
            state_epoch=share.state_epoch,
            leader_epoch=share.leader_epoch,
            start_offset=share.start_offset,
            delivery_complete_count=share.delivery_complete_count,
        )
    )


def delete(state: ShareShardState, key: ShareKey, partitions: int | None) -> Decided[Outcome]:
    """Forget a share partition; one that is not there is no error (deleteState, maybeGetDeleteStateError)."""
    if key.partition < 0:
        return Decision(_invalid(_NEGATIVE_PARTITION))
    if not _exists(key, partitions):
        return Decision(NO_PARTITION)
    return Decision(DONE, (Removed(key),) if key in state.shares else ())


def cold(state: ShareShardState, now_ms: int, interval_ms: int) -> list[ShareKey]:
    """The share partitions whose last snapshot is older (snapshotColdPartitions).

    A new one lets the records before it go. None if all have had one since they changed: then nothing more could go.
    """
    if all(share.created_ms != share.written_ms for share in state.shares.values()):
        return []
    return [key for key, share in state.shares.items() if now_ms - share.written_ms >= interval_ms]


def write_again(state: ShareShardState, now_ms: int, key: ShareKey) -> Decided[None]:
    """A snapshot of a share partition as it is."""
    share = state.shares.get(key)
    return Decision(None, () if share is None else (_snapshot(key, share, now_ms),))
