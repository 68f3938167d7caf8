"""Who may commit and fetch positions of a consumer group, and when they go (G4, G5, G6, G7, T5; KIP-1251)."""

from dataclasses import replace
from typing import Any

import pytest

from fencepost.coordinator.group.consumer.group import ConsumerGroup
from fencepost.coordinator.group.consumer.member import ClassicSide, ConsumerMember
from fencepost.coordinator.group.consumer.offsets import check_commit, check_fetch, expired
from fencepost.coordinator.group.consumer.records import CurrentRecord, EpochRecord, GroupEpoch, MemberRecord
from fencepost.coordinator.group.offsets import OffsetStore
from fencepost.coordinator.group.records import CommittedOffset, OffsetCommitted, OffsetPending, OffsetRemoved
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.topics import TopicPartition
from tests.unit.group.consumer.kit import NOW, owned, topic_id

NONE, STALE, ILLEGAL = ErrorCode.NONE, ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION
MEMBER = ConsumerMember(
    member_id="a",
    epoch=7,
    topics=frozenset("t"),
    assigned={topic_id("t"): {0: 3, 1: 6}},
    revoking=owned(2, t=(2,)),
)
RETENTION_MS = 1000


def group_of(*members: ConsumerMember) -> ConsumerGroup:
    group = ConsumerGroup("g")
    for member in members:
        group.apply(MemberRecord("g", member.member_id, member))
        group.apply(CurrentRecord("g", member.member_id, member))
    return group


def commit(group: ConsumerGroup, member_id: str, epoch: int, *partitions: int, **more: Any) -> ErrorCode:
    fields = {"transactional": False, "knows_epochs": True, **more}
    places = tuple(TopicPartition("t", one) for one in partitions)
    return check_commit(group, member_id, None, epoch, partitions=places, topic_id=topic_id, **fields)


def test_with_the_members_own_epoch_everything_g6() -> None:
    assert commit(group_of(MEMBER), "a", 7, 0, 1, 2, 9) is NONE


@pytest.mark.parametrize(
    ("epoch", "partitions", "answer"),
    [
        *((6, (0, 1, 2), NONE), (3, (0, 2), NONE), (2, (2,), NONE)),
        *((5, (0, 1), STALE), (1, (2,), STALE), (6, (9,), STALE), (8, (0,), STALE)),
    ],
)
def test_with_an_older_epoch_what_it_has_held_since_then_g6(
    epoch: int, partitions: tuple[int, ...], answer: ErrorCode
) -> None:
    assert commit(group_of(MEMBER), "a", epoch, *partitions) is answer


def test_a_classic_member_hears_of_its_generation_g5() -> None:
    classic = replace(MEMBER, classic=ClassicSide(1000, ()))
    assert commit(group_of(classic), "a", 5, 1) is ILLEGAL
    assert commit(group_of(classic), "a", 7, 1, knows_epochs=False) is NONE


def test_an_old_version_can_not_speak_of_epochs_g6() -> None:
    assert commit(group_of(MEMBER), "a", 7, 0, knows_epochs=False) is ErrorCode.UNSUPPORTED_VERSION


def test_who_is_no_member_may_commit_where_there_are_none_g6() -> None:
    assert commit(group_of(), "", -1, 0) is NONE
    assert commit(group_of(MEMBER), "", -1, 0) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(group_of(), "a", 7, 0) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_transaction_that_names_no_member_is_let_through_t5() -> None:
    assert commit(group_of(MEMBER), "", -1, 0, transactional=True) is NONE


def test_a_transaction_of_a_zombie_hears_of_its_epoch_from_v6_on_t5() -> None:
    assert commit(group_of(MEMBER), "a", 5, 1, transactional=True, knows_epochs=False) is ILLEGAL
    assert commit(group_of(MEMBER), "a", 5, 1, transactional=True) is STALE
    assert commit(group_of(MEMBER), "a", 7, 1, transactional=True, knows_epochs=False) is NONE
    assert commit(group_of(MEMBER), "z", 7, 1, transactional=True) is ErrorCode.UNKNOWN_MEMBER_ID


def test_fetching_by_members_and_by_others_g6() -> None:
    group = group_of(MEMBER)
    assert check_fetch(group, None, -1) is NONE
    assert check_fetch(group, "a", 7) is NONE
    assert check_fetch(group, "a", 6) is STALE
    assert check_fetch(group, "z", 7) is ErrorCode.UNKNOWN_MEMBER_ID
    assert check_fetch(group_of(replace(MEMBER, classic=ClassicSide(1, ()))), "a", 6) is ILLEGAL


class TestExpiry:
    """Positions are kept from their commit on, and as long as somebody subscribes to their topic."""

    def stored(self, *topics: str) -> OffsetStore:
        store = OffsetStore()
        for topic in topics:
            value = CommittedOffset(1, commit_timestamp_ms=NOW)
            store.apply(OffsetCommitted("g", TopicPartition(topic, 0), value))
        return store

    def test_what_no_member_subscribes_to_goes_g7(self) -> None:
        store = self.stored("t", "u")
        assert expired(group_of(MEMBER), store, RETENTION_MS, NOW + RETENTION_MS - 1) == []
        gone = expired(group_of(MEMBER), store, RETENTION_MS, NOW + RETENTION_MS)
        assert gone == [OffsetRemoved("g", TopicPartition("u", 0))]

    def test_the_group_goes_with_its_last_position_g7(self) -> None:
        group = group_of()
        group.apply(EpochRecord("g", GroupEpoch(4)))
        gone = expired(group, self.stored("t"), RETENTION_MS, NOW + RETENTION_MS)
        assert gone[0] == OffsetRemoved("g", TopicPartition("t", 0))
        assert gone[-1] == EpochRecord("g", None)

    def test_a_position_under_decision_keeps_both_t5(self) -> None:
        store = self.stored("t")
        pending = OffsetCommitted("g", TopicPartition("t", 0), CommittedOffset(2, commit_timestamp_ms=NOW))
        store.apply(OffsetPending(5, pending))
        assert expired(group_of(), store, RETENTION_MS, NOW + RETENTION_MS) == []
