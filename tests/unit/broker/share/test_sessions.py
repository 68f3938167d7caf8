"""Share sessions: Kafka's `SharePartitionManager.newContext`, `acknowledgeSessionUpdate` and `ShareSessionCache`."""

from collections.abc import Callable, Iterable

import pytest

from fencepost.broker.share.sessions import MemberKey, ShareSessionError, ShareSessions, TopicIdPartition
from fencepost.protocol.errors import ErrorCode

MEMBER = MemberKey("workers", "member-1")
OTHER = MemberKey("workers", "member-2")
FIRST, SECOND = TopicIdPartition(b"t" * 16, 0), TopicIdPartition(b"t" * 16, 1)


class Connection:
    def __init__(self) -> None:
        self.closed: dict[object, Callable[[], None]] = {}

    def close(self) -> None:
        for closed in tuple(self.closed.values()):
            closed()


class Sessions(ShareSessions):
    def __init__(self, limit: int = 10) -> None:
        self.ended: list[tuple[MemberKey, list[TopicIdPartition]]] = []
        super().__init__(lambda: limit, self._note)

    def _note(self, member: MemberKey, parts: Iterable[TopicIdPartition]) -> None:
        self.ended.append((member, list(parts)))


def test_requests_continue_a_session_by_its_next_epoch() -> None:
    """ShareSession: epoch 0 begins, and each request must have the epoch after the last (newContext)."""
    sessions = Sessions()
    sessions.begin(MEMBER, [FIRST], Connection())
    sessions.continued(MEMBER, 1)
    sessions.continued(MEMBER, 2)
    with pytest.raises(ShareSessionError) as refused:
        sessions.continued(MEMBER, 2)
    assert refused.value.code is ErrorCode.INVALID_SHARE_SESSION_EPOCH


def test_the_epoch_after_the_last_is_one() -> None:
    """ShareRequestMetadata.nextEpoch: 0 is never a session's own epoch."""
    sessions = Sessions()
    session = sessions.begin(MEMBER, [FIRST], Connection())
    session.epoch = 2**31 - 1
    sessions.continued(MEMBER, 2**31 - 1)
    assert session.epoch == 1


def test_a_request_without_a_session_is_refused() -> None:
    """newContext and acknowledgeSessionUpdate: SHARE_SESSION_NOT_FOUND."""
    with pytest.raises(ShareSessionError) as refused:
        Sessions().continued(MEMBER, 1)
    assert refused.value.code is ErrorCode.SHARE_SESSION_NOT_FOUND


def test_a_connection_keeps_nothing_of_sessions_that_ended() -> None:
    """ShareSessionCache.remove: a member may begin and end sessions on one connection for ever."""
    sessions, connection = Sessions(), Connection()
    for number in range(3):
        member = MemberKey("workers", f"member-{number}")
        sessions.begin(member, [FIRST], connection)
        sessions.end(member)
    assert connection.closed == {}
    sessions.begin(MEMBER, [FIRST], connection)
    sessions.begin(MEMBER, [FIRST], Connection())
    assert connection.closed == {}


def test_a_request_adds_and_forgets_partitions() -> None:
    """ShareSession.update: what is added or asked for again is named in the next response."""
    sessions = Sessions()
    session = sessions.begin(MEMBER, [FIRST], Connection())
    session.update([SECOND], [FIRST])
    assert (session.partitions, list(session.named)) == ({SECOND: None}, [SECOND])


def test_a_full_table_takes_no_further_session_but_one_in_place_of_another() -> None:
    """ShareSessionCache.maybeCreateSession: group.share.max.share.sessions; epoch 0 removes the member's former one."""
    sessions = Sessions(limit=1)
    sessions.begin(MEMBER, [FIRST], Connection())
    with pytest.raises(ShareSessionError) as refused:
        sessions.begin(OTHER, [FIRST], Connection())
    assert refused.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    sessions.begin(MEMBER, [SECOND], Connection())
    assert len(sessions) == 1


def test_no_session_grows_without_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: what a client adds need not exist."""
    monkeypatch.setattr("fencepost.broker.share.sessions.PARTITIONS_MAX", 1)
    sessions = Sessions()
    session = sessions.begin(MEMBER, [FIRST], Connection())
    with pytest.raises(ShareSessionError) as refused:
        session.update([SECOND], [])
    assert refused.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert list(session.partitions) == [FIRST]


def test_a_session_ends_with_its_connection() -> None:
    """ShareSessionCache.ClientConnectionDisconnectListener: the member's records are released at once."""
    sessions, connection = Sessions(), Connection()
    sessions.begin(MEMBER, [FIRST, SECOND], connection)
    connection.close()
    assert sessions.ended == [(MEMBER, [FIRST, SECOND])]
    assert (len(sessions), sessions.evicted, sessions.of_group["workers"]) == (0, 1, 0)


def test_the_end_of_an_older_connection_leaves_the_new_session() -> None:
    """SessionKeyAndState.markStale: a member that connected again keeps its session when the old connection ends."""
    sessions, old = Sessions(), Connection()
    sessions.begin(MEMBER, [FIRST], old)
    sessions.begin(MEMBER, [FIRST], Connection())
    old.close()
    assert (sessions.ended, len(sessions), sessions.of_group["workers"]) == ([], 1, 1)


def test_a_session_that_a_member_ended_does_not_end_again() -> None:
    """releaseSession: epoch -1 removes it; the end of the connection then finds none."""
    sessions, connection = Sessions(), Connection()
    sessions.begin(MEMBER, [FIRST], connection)
    assert sessions.end(MEMBER) == [FIRST]
    connection.close()
    assert (sessions.ended, sessions.partition_count) == ([], 0)
