"""The pure parts of a queue: sessions, the member, acknowledgements (KIP-932)."""

from hypothesis import given
from hypothesis import strategies as st

from fencepost.client.core.acknowledgements import Acknowledgement, AcknowledgementBatch, AcknowledgeType, in_batches
from fencepost.client.core.acquired_records import AcquiredRange, sort_out
from fencepost.client.core.share_member import ShareHeartbeat, ShareMember
from fencepost.client.core.share_session import FetchChanges, Place, ShareSession
from fencepost.protocol.batch_header import CONTROL_BIT
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import build_batch
from fencepost.protocol.records import Record

ACCEPT, RELEASE, REJECT, GAP = (
    AcknowledgeType.ACCEPT,
    AcknowledgeType.RELEASE,
    AcknowledgeType.REJECT,
    AcknowledgeType.GAP,
)
NONE = ErrorCode.NONE


def places(*numbers: int, topic: bytes = b"t" * 16) -> frozenset[Place]:
    return frozenset((topic, number) for number in numbers)


# -- acknowledgements


def said(*entries: tuple[int, AcknowledgeType]) -> list[Acknowledgement]:
    return [Acknowledgement(offset, kind) for offset, kind in entries]


def test_a_batch_has_one_delay() -> None:
    """Ours: the broker holds all back that a batch releases."""
    entries = [Acknowledgement(1, RELEASE, 5), Acknowledgement(2, RELEASE, 5), Acknowledgement(3, RELEASE)]
    assert in_batches(entries) == [AcknowledgementBatch(1, 2, (RELEASE,), 5), AcknowledgementBatch(3, 3, (RELEASE,))]


def test_offsets_in_a_row_of_one_type_are_one_batch_with_one_type() -> None:
    """KIP-932: an array of one acknowledge type stands for all offsets of the batch."""
    assert in_batches(said((5, ACCEPT), (3, ACCEPT), (4, ACCEPT))) == [AcknowledgementBatch(3, 5, (ACCEPT,))]


def test_a_batch_of_different_types_names_each() -> None:
    """KIP-932: otherwise there is one type for each offset."""
    assert in_batches(said((3, ACCEPT), (4, GAP), (5, RELEASE))) == [AcknowledgementBatch(3, 5, (ACCEPT, GAP, RELEASE))]


def test_batches_do_not_overlap_and_leave_out_what_is_not_acknowledged() -> None:
    """KafkaApis.validateAcknowledgementBatches: rising, without overlaps."""
    assert in_batches(said((9, REJECT), (1, ACCEPT), (2, ACCEPT))) == [
        AcknowledgementBatch(1, 2, (ACCEPT,)),
        AcknowledgementBatch(9, 9, (REJECT,)),
    ]
    assert in_batches([]) == []


@given(st.dictionaries(st.integers(0, 60), st.sampled_from(AcknowledgeType)))
def test_batches_say_of_each_offset_what_was_decided(wanted: dict[int, AcknowledgeType]) -> None:
    found: dict[int, AcknowledgeType] = {}
    last = -1
    for batch in in_batches(said(*wanted.items())):
        assert batch.first_offset > last
        last = batch.last_offset
        offsets = range(batch.first_offset, batch.last_offset + 1)
        types = batch.types * len(offsets) if len(batch.types) == 1 else batch.types
        found |= dict(zip(offsets, types, strict=True))
    assert found == wanted


# -- share sessions


def test_a_new_session_names_all_and_a_later_request_what_changed() -> None:
    """ShareSessionHandler.newShareFetchBuilder: added and removed partitions."""
    session = ShareSession()
    assert session.fetch(places(0, 1)) == FetchChanges(0, places(0, 1), places())
    session.answered(NONE)
    assert session.fetch(places(1, 2)) == FetchChanges(1, places(2), places(0))
    session.answered(NONE)
    assert session.fetch(places(1, 2)) == FetchChanges(2, places(), places())


def test_a_fetch_and_an_acknowledgement_count_in_the_same_epochs() -> None:
    """SharePartitionManager.newContext and acknowledgeSessionUpdate: both raise the session's epoch by one."""
    session = ShareSession()
    session.fetch(places(0))
    session.answered(NONE)
    assert session.acknowledge() == 1
    session.answered(NONE)
    assert session.fetch(places(0)).epoch == 2


def test_only_a_fetch_opens_a_session_and_without_acknowledgements() -> None:
    """SharePartitionManager.newContext: acknowledgements with epoch 0 are INVALID_REQUEST."""
    session = ShareSession()
    assert not session.is_open
    session.fetch(places(0))
    assert not session.is_open
    session.answered(NONE)
    assert session.is_open


def test_an_unknown_session_is_opened_anew_with_all_partitions() -> None:
    """ShareSessionHandler.handleResponse: nextCloseExistingAttemptNew."""
    for code in (
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    ):
        session = ShareSession()
        session.fetch(places(0))
        session.answered(NONE)
        session.fetch(places(0))
        session.answered(code)
        assert session.fetch(places(0)) == FetchChanges(0, places(0), places())


def test_another_error_of_a_request_uses_up_its_epoch() -> None:
    """ShareSessionHandler.handleResponse: nextEpoch."""
    session = ShareSession()
    session.fetch(places(0))
    session.answered(NONE)
    session.fetch(places(0))
    session.answered(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert session.fetch(places(0)).epoch == 2


def test_after_a_lost_connection_the_session_is_gone() -> None:
    """ShareSessionCache: a session ends with the connection that it was opened on."""
    session = ShareSession()
    session.fetch(places(0))
    session.answered(NONE)
    session.lost()
    assert session.close() is None
    assert session.fetch(places(0)).epoch == 0


def test_the_final_epoch_ends_a_session() -> None:
    """KIP-932: epoch -1 acknowledges, and closes."""
    session = ShareSession()
    session.fetch(places(0))
    session.answered(NONE)
    assert session.close() == -1
    assert session.close() is None


# -- the member


def joined(*numbers: int) -> ShareMember:
    member = ShareMember(("t",))
    member.answered(member.heartbeat(), NONE, 3, places(*numbers))
    return member


def test_a_member_joins_with_its_topics_and_then_names_them_no_more() -> None:
    """KIP-932: null means no change since the last heartbeat."""
    member = ShareMember(("t",))
    assert member.heartbeat() == ShareHeartbeat(0, ("t",))
    member.answered(member.heartbeat(), NONE, 3, None)
    assert member.heartbeat() == ShareHeartbeat(3, None)
    member.answered(member.heartbeat(), NONE, 4, places(0))
    assert (member.epoch, member.assignment) == (4, places(0))


def test_after_a_heartbeat_without_response_it_names_them_again() -> None:
    """ShareHeartbeatRequestManager.HeartbeatState.reset."""
    member = joined(0)
    member.unanswered()
    assert member.heartbeat() == ShareHeartbeat(3, ("t",))


def test_a_fenced_member_joins_again_without_partitions() -> None:
    """ShareMembershipManager.transitionToFenced, onHeartbeatFailure."""
    for code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND):
        member = joined(0)
        member.answered(member.heartbeat(), code, 0, None)
        assert (member.assignment, member.failure) == (places(), None)
        assert member.heartbeat() == ShareHeartbeat(0, ("t",))


def test_a_group_of_another_kind_is_a_failure() -> None:
    """GroupMetadataManager.getOrMaybeCreateShareGroup: GROUP_ID_NOT_FOUND at a join: it is not a share group."""
    for code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION):
        member = ShareMember(("t",))
        member.answered(member.heartbeat(), code, 0, None)
        assert member.failure is code


def test_a_coordinator_that_is_not_ready_changes_nothing() -> None:
    member = joined(0)
    member.answered(member.heartbeat(), ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 0, None)
    assert (member.epoch, member.assignment, member.failure) == (3, places(0), None)


def test_a_response_to_an_older_epoch_is_ignored() -> None:
    member = joined(0)
    old = member.heartbeat()
    member.answered(old, NONE, 4, None)
    member.answered(old, ErrorCode.FENCED_MEMBER_EPOCH, 0, None)
    assert member.epoch == 4


def test_leaving_is_epoch_minus_one() -> None:
    """KIP-932: a member leaves with epoch -1."""
    assert joined(0).leave() == ShareHeartbeat(-1, None)
    assert ShareMember(("t",)).leave() is None


# -- acquired records


def batch(first: int, count: int, *, control: bool = False) -> bytes:
    records = [Record(first + n, 0, b"k", b"%d" % n) for n in range(count)]
    return bytes(build_batch(records, base_offset=first, extra_attributes=CONTROL_BIT if control else 0))


def sorted_out(
    buffer: bytes, *ranges: tuple[int, int, int]
) -> tuple[list[tuple[int, int]], list[int], list[int], list[int]]:
    found = sort_out(buffer, [AcquiredRange(*one) for one in ranges], True, 1 << 20)
    return [(one.offset, count) for one, count in found.records], found.gaps, found.damaged, found.unread


def test_only_acquired_records_are_given() -> None:
    """ShareCompletedFetch.fetchRecords: a response has whole batches."""
    assert sorted_out(batch(0, 6), (1, 2, 1), (4, 4, 3)) == ([(1, 1), (2, 1), (4, 3)], [], [], [])


def test_an_acquired_offset_without_a_record_is_a_gap() -> None:
    """ShareCompletedFetch.fetchRecords, addGap: compaction removed it."""
    assert sorted_out(batch(0, 2) + batch(4, 1), (0, 5, 1)) == ([(0, 1), (1, 1), (4, 1)], [2, 3, 5], [], [])


def test_a_marker_is_a_gap() -> None:
    """ShareCompletedFetch.nextFetchedRecord: control records are not returned to the user."""
    assert sorted_out(batch(0, 1) + batch(1, 1, control=True), (0, 1, 1)) == ([(0, 1)], [1], [], [])


def test_a_batch_with_a_wrong_crc_is_damaged_as_a_whole_and_alone() -> None:
    """ShareCompletedFetch.rejectRecordBatch."""
    bad = bytearray(batch(2, 2))
    bad[-1] ^= 1
    assert sorted_out(batch(0, 2) + bytes(bad) + batch(4, 1), (0, 2, 1), (4, 4, 1)) == (
        [(0, 1), (1, 1), (4, 1)],
        [],
        [2],
        [],
    )


def test_offsets_behind_bytes_that_are_no_batch_are_not_read() -> None:
    """They may be whole in the log: release them, do not archive them."""
    found = sorted_out(batch(0, 1) + b"\xff" * 80, (0, 2, 1))
    assert (found[0], found[3]) == ([(0, 1)], [1, 2])


def test_a_response_without_records_has_gaps_only() -> None:
    assert sorted_out(b"", (0, 1, 1)) == ([], [0, 1], [], [])
