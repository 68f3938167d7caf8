"""The rules of Kafka's ShareCoordinatorShard, one test each."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from fencepost.coordinator.share import decisions
from fencepost.coordinator.share.decisions import BATCHES_MAX, Decided
from fencepost.coordinator.share.records import Removed, ShareRecord, Snapshot, Update
from fencepost.coordinator.share.state import ShareRecords, ShareShardState, ShareState
from fencepost.coordinator.share.values import InitialState, Outcome, StateBatch, StateSummary, StateUpdate, StoredState
from fencepost.protocol.errors import ErrorCode
from tests.unit.share.kit import KEY, update

MINUTE_MS = 60_000


@dataclass
class Shard:
    """Decisions, with their records applied."""

    per_snapshot: int = 500
    partitions: int | None = 3
    now_ms: int = 1000
    state: ShareShardState = field(default_factory=ShareShardState)
    records: list[ShareRecord] = field(default_factory=list)

    def apply(self, decision: Decided[Any]) -> Any:
        for record in decision.log:
            ShareRecords(self.per_snapshot).apply(self.state, record)
        self.records += decision.log
        return decision.reply

    def initialize(self, state_epoch: int = 1, start: int = 100, key: Any = KEY) -> Outcome:
        wanted = InitialState(state_epoch, start)
        reply: Outcome = self.apply(decisions.initialize(self.state, key, wanted, self.partitions, self.now_ms))
        return reply

    def write(self, what: StateUpdate, key: Any = KEY) -> Outcome:
        decision = decisions.write(self.state, key, what, self.partitions, self.per_snapshot, self.now_ms)
        reply: Outcome = self.apply(decision)
        return reply

    def read(self, leader_epoch: int, key: Any = KEY) -> StoredState:
        decision = decisions.read(self.state, key, leader_epoch, self.partitions, self.per_snapshot, self.now_ms)
        reply: StoredState = self.apply(decision)
        return reply

    def summary(self, key: Any = KEY) -> StateSummary:
        reply: StateSummary = self.apply(decisions.summarize(self.state, key, self.partitions))
        return reply

    def delete(self, key: Any = KEY) -> Outcome:
        reply: Outcome = self.apply(decisions.delete(self.state, key, self.partitions))
        return reply

    @property
    def share(self) -> ShareState:
        return self.state.shares[KEY]


@pytest.fixture
def shard() -> Shard:
    """A share partition of state epoch 1 that begins at 100."""
    shard = Shard()
    assert shard.initialize() == Outcome()
    shard.records.clear()
    return shard


def test_initializing_writes_an_empty_snapshot() -> None:
    """generateInitializeStateRecord, ShareGroupOffset.fromRequest: snapshot epoch 0, leader epoch 0, count 0."""
    shard = Shard()
    assert shard.initialize(state_epoch=4, start=100) == Outcome()
    assert shard.records == [Snapshot(KEY, 0, 4, 0, 100, 0, 1000, 1000, ())]


def test_an_unknown_start_offset_has_no_delivery_complete_count() -> None:
    """ShareGroupOffset.fromRequest: with start offset -1 the count is -1 (KIP-1226)."""
    shard = Shard()
    shard.initialize(start=-1)
    assert (shard.share.start_offset, shard.share.delivery_complete_count) == (-1, -1)


def test_initializing_again_begins_anew(shard: Shard) -> None:
    """generateInitializeStateRecord: the next snapshot epoch, no batches, leader epoch 0. Old leaders stay fenced."""
    shard.read(7)
    shard.write(update(100, (100, 109, 2, 1), leader_epoch=7))
    assert shard.initialize(state_epoch=2, start=50) == Outcome()
    assert shard.records[-1] == Snapshot(KEY, 1, 2, 0, 50, 0, 1000, 1000, ())
    assert shard.read(6).error is ErrorCode.FENCED_LEADER_EPOCH
    assert shard.read(7) == StoredState(state_epoch=2, start_offset=50)


def test_an_older_state_epoch_cannot_initialize(shard: Shard) -> None:
    """maybeGetInitializeStateError: FENCED_STATE_EPOCH below the recorded one."""
    assert shard.initialize(state_epoch=0).error is ErrorCode.FENCED_STATE_EPOCH
    assert not shard.records


def test_a_late_initialization_changes_nothing(shard: Shard) -> None:
    """In Kafka it begins the share partition anew (ShareCoordinatorShard.initializeState), after what was stored since.

    Here each beginning has an epoch of its own, so the same one is a request that was sent twice.
    """
    shard.write(update(110, (110, 119, 2, 1)))
    assert shard.initialize(state_epoch=1) == Outcome()
    assert shard.read(0).start_offset == 110
    assert len(shard.records) == 1


@pytest.mark.parametrize("partitions", [None, 0])
def test_a_partition_that_is_not_there_is_unknown(shard: Shard, partitions: int | None) -> None:
    """maybeGet*StateError: UNKNOWN_TOPIC_OR_PARTITION without the topic, and beyond its partitions."""
    shard.partitions = partitions
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    found = [shard.initialize(), shard.write(update()), shard.read(0), shard.summary(), shard.delete()]
    assert [one.error for one in found] == [unknown] * 5
    assert not shard.records


def test_fencing_comes_before_the_look_for_the_partition(shard: Shard) -> None:
    """maybeGetWriteStateError, maybeGetReadStateError, maybeGetInitializeStateError: the order of the checks."""
    shard.read(5)
    shard.partitions = None
    assert shard.write(update(leader_epoch=4)).error is ErrorCode.FENCED_LEADER_EPOCH
    assert shard.write(update(leader_epoch=5, state_epoch=0)).error is ErrorCode.FENCED_STATE_EPOCH
    assert shard.read(4).error is ErrorCode.FENCED_LEADER_EPOCH
    assert shard.initialize(state_epoch=0).error is ErrorCode.FENCED_STATE_EPOCH


def test_negative_numbers_are_invalid(shard: Shard) -> None:
    """maybeGet*StateError: INVALID_REQUEST for a negative partition, leader epoch or state epoch."""
    below = KEY._replace(partition=-1)
    found = [
        shard.initialize(key=below),
        shard.initialize(state_epoch=-1),
        shard.write(update(), below),
        shard.write(update(leader_epoch=-1)),
        shard.write(update(state_epoch=-1)),
        shard.read(0, below),
        shard.read(-1),
        shard.summary(below),
        shard.delete(below),
    ]
    assert [one.error for one in found] == [ErrorCode.INVALID_REQUEST] * 9
    assert not shard.records


def test_what_is_not_initialized_cannot_be_read_or_written() -> None:
    """WRITE_UNINITIALIZED_SHARE_PARTITION, READ_UNINITIALIZED_SHARE_PARTITION: INVALID_REQUEST."""
    shard = Shard()
    read, written = shard.read(0), shard.write(update())
    assert (read.error, written.error) == (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST)
    assert written.message == "Write operation on uninitialized share partition not allowed."
    assert read.message == "Read operation on uninitialized share partition not allowed."


def test_a_write_is_an_update_of_what_changed(shard: Shard) -> None:
    """generateShareStateRecord: the batches of the request alone, combined; the epochs of the stored state."""
    assert shard.write(update(100, (100, 109, 2, 1), (110, 119, 2, 1), complete=20, leader_epoch=9)) == Outcome()
    assert shard.records == [Update(KEY, 0, 0, 100, 20, (StateBatch(100, 119, 2, 1),))]
    assert (shard.share.leader_epoch, shard.share.state_epoch) == (0, 1)
    shard.write(update(105, (130, 139, 0, 2)))
    assert shard.read(0).batches == (StateBatch(105, 119, 2, 1), StateBatch(130, 139, 0, 2))


def test_a_read_fences_older_leaders(shard: Shard) -> None:
    """readStateAndMaybeUpdateLeaderEpoch: a new leader epoch is written with the start offset and count as they are."""
    shard.write(update(110, complete=5))
    assert shard.read(3).error is ErrorCode.NONE
    assert shard.records[1:] == [Update(KEY, 0, 3, 110, 5, ())]
    assert shard.read(3).error is ErrorCode.NONE
    assert len(shard.records) == 2, "the same leader epoch writes nothing"
    assert shard.write(update(leader_epoch=2)).error is ErrorCode.FENCED_LEADER_EPOCH
    assert shard.write(update(leader_epoch=4)).error is ErrorCode.NONE
    assert shard.read(3).error is ErrorCode.NONE, "a write does not raise the leader epoch"


@pytest.mark.parametrize("state_epoch", [0, 2])
def test_another_state_epoch_cannot_write(shard: Shard, state_epoch: int) -> None:
    """maybeGetWriteStateError: FENCED_STATE_EPOCH below the recorded one. Kafka accepts one above it.

    A leader has that of a state which was deleted, as the group that was created again began by an earlier clock.
    """
    assert shard.write(update(state_epoch=state_epoch)).error is ErrorCode.FENCED_STATE_EPOCH


@pytest.mark.parametrize(
    ("start", "complete", "expected"),
    [
        (100, 3, (100, 5)),
        (100, 7, (100, 7)),
        (110, 2, (110, 2)),
        (90, 9, (100, 5)),
        (-1, 9, (100, 5)),
    ],
)
def test_the_count_belongs_to_the_start_offset(
    shard: Shard, start: int, complete: int, expected: tuple[int, int]
) -> None:
    """generateShareStateRecord (KIP-1226): the start never falls; -1 leaves it; of two counts for one the higher."""
    shard.write(update(100, complete=5))
    shard.write(update(start, complete=complete))
    assert (shard.share.start_offset, shard.share.delivery_complete_count) == expected


def test_every_so_many_updates_come_with_a_snapshot() -> None:
    """generateShareStateRecord, handleShareSnapshot: after the limit a snapshot, and the count begins anew."""
    shard = Shard(per_snapshot=2)
    shard.initialize()
    for number in range(6):
        shard.now_ms += 1
        shard.write(update(100, (100 + number, 100 + number, 2, 1), complete=number + 1))
    kinds = [type(record) for record in shard.records]
    assert kinds == [Snapshot, Update, Update, Snapshot, Update, Update, Snapshot]
    assert shard.records[3] == Snapshot(KEY, 1, 1, 0, 100, 3, 1003, 1003, (StateBatch(100, 102, 2, 1),))


def test_a_limit_of_0_writes_snapshots_only() -> None:
    """share.coordinator.snapshot.update.records.per.snapshot may be 0 (ShareCoordinatorConfig)."""
    shard = Shard(per_snapshot=0)
    shard.initialize()
    shard.write(update())
    shard.read(1)
    assert [type(record) for record in shard.records] == [Snapshot] * 3


def test_initializing_again_does_not_count_as_a_snapshot_of_updates() -> None:
    """handleShareSnapshot: the count of updates is reset only if it had reached the limit."""
    shard = Shard(per_snapshot=2)
    shard.initialize()
    shard.write(update())
    shard.initialize(state_epoch=2)
    shard.write(update(state_epoch=2))
    shard.write(update(state_epoch=2))
    kinds = [type(record) for record in shard.records]
    assert kinds == [Snapshot, Update, Snapshot, Update, Snapshot]


def test_the_summary_has_no_batches(shard: Shard) -> None:
    """readStateSummary: any leader epoch will do; an uninitialized share partition has an empty one."""
    shard.read(6)
    shard.write(update(120, complete=4, leader_epoch=6))
    assert shard.summary() == StateSummary(state_epoch=1, leader_epoch=6, start_offset=120, delivery_complete_count=4)
    assert shard.summary(KEY._replace(partition=1)) == StateSummary(ErrorCode.NONE, None, 0, 0, -1, -1)


def test_deleting_writes_a_tombstone_once(shard: Shard) -> None:
    """deleteState: of one that is not there nothing is written, without an error. All epochs are forgotten."""
    shard.read(6)
    assert [shard.delete(), shard.delete()] == [Outcome(), Outcome()]
    assert shard.records[1:] == [Removed(KEY)]
    assert shard.initialize(state_epoch=0) == Outcome()
    assert shard.read(0) == StoredState(start_offset=100)


def test_batches_that_end_before_they_begin_are_invalid(shard: Shard) -> None:
    """Kafka's PersisterStateBatchCombiner fails on them."""
    assert shard.write(update(100, (105, 104, 2, 1))).error is ErrorCode.INVALID_REQUEST
    assert shard.write(update(100, (-5, 104, 2, 1))).error is ErrorCode.INVALID_REQUEST


def test_a_share_partition_has_no_more_batches_than_fit_a_snapshot(shard: Shard) -> None:
    """fencepost's own bound: POLICY_VIOLATION. Batches that combine with others do not count."""
    rows = [(100 + 2 * number, 100 + 2 * number, 2, 1) for number in range(BATCHES_MAX)]
    assert shard.write(update(100, *rows)) == Outcome()
    assert shard.write(update(100, (90_000, 90_000, 2, 1))).error is ErrorCode.POLICY_VIOLATION
    assert shard.write(update(1000, (1000, 1001, 2, 1))) == Outcome()
    assert len(shard.share.batches) < BATCHES_MAX
    assert shard.write(update(1000, (90_000, 90_000, 2, 1))) == Outcome()


def test_cold_share_partitions_get_a_snapshot(shard: Shard) -> None:
    """snapshotColdPartitions: created_ms stays, written_ms is new; none when all have had theirs."""
    shard.write(update(100, (100, 109, 2, 1), complete=10))
    later = shard.now_ms + 5 * MINUTE_MS
    assert decisions.cold(shard.state, later - 1, 5 * MINUTE_MS) == []
    assert decisions.cold(shard.state, later, 5 * MINUTE_MS) == [KEY]
    shard.apply(decisions.write_again(shard.state, later, KEY))
    assert shard.records[-1] == Snapshot(KEY, 1, 1, 0, 100, 10, 1000, later, (StateBatch(100, 109, 2, 1),))
    assert decisions.cold(shard.state, later + 5 * MINUTE_MS, 5 * MINUTE_MS) == []
    shard.now_ms = later
    shard.initialize(key=KEY._replace(partition=1))
    assert len(decisions.cold(shard.state, later + 5 * MINUTE_MS, 5 * MINUTE_MS)) == 2
    assert decisions.write_again(shard.state, later, KEY._replace(partition=2)).log == ()


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([], 0),
        (["a"], 0),
        (["a", "b"], 0),
        (["a", "b", "a"], 1),
        (["a", "b", "b", "a"], 2),
        (["a", "b", "c", "a"], 1),
        (["a", "b", "-a"], 1),
        (["a", "-a"], 1),
        (["a", "b", "-a", "-b"], 3),
        (["a", "-a", "a"], 2),
    ],
)
def test_records_below_the_oldest_last_snapshot_are_redundant(records: list[str], expected: int) -> None:
    """ShareCoordinatorOffsetsManager.updateState and findRedundantOffset; `-a` is the tombstone of `a`."""
    state, machine = ShareShardState(), ShareRecords(500)
    for offset, name in enumerate(records):
        key = KEY._replace(group_id=name[-1])
        record: ShareRecord = Removed(key) if name[0] == "-" else Snapshot(key, 0, 0, 0, 0, 0, 0, 0, ())
        machine.apply(state, record)
        state.place([record], offset)
    assert state.redundant_to == expected


def test_nothing_is_redundant_while_the_place_of_a_snapshot_is_not_known() -> None:
    """A log that binds its offsets late does not say it at the append."""
    state, machine = ShareShardState(), ShareRecords(500)
    for name in "ab":
        machine.apply(state, Snapshot(KEY._replace(group_id=name), 0, 0, 0, 0, 0, 0, 0, ()))
    state.place([Snapshot(KEY._replace(group_id="b"), 0, 0, 0, 0, 0, 0, 0, ())], 7)
    assert state.redundant_to == 0


def test_a_place_that_is_known_late_changes_nothing() -> None:
    """Requests that wait for their records to be durable may go on in any order."""
    state, machine = ShareShardState(), ShareRecords(500)
    record = Snapshot(KEY, 0, 0, 0, 0, 0, 0, 0, ())
    machine.apply(state, record)
    state.place([record], 7)
    state.place([record], 5)
    assert state.redundant_to == 7
