"""Fetch sessions (L13, KIP-227), by the rules of Kafka's FetchManager, FetchSessionCache and CachedPartition."""

from collections.abc import Callable
from itertools import count

import pytest

from fencepost.broker.fetch.sessions import EVICTION_MS, PARTITIONS_PER_SLOT, FetchSession, FetchSessions, SessionError
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api01_fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)

VERSION = 12
NOW = 1_000


def ids() -> Callable[[int], bytes]:
    numbers = count(1)
    return lambda size: next(numbers).to_bytes(size, "big")


def request(
    *numbers: int, session: int = 0, epoch: int = 0, forget: tuple[int, ...] = (), topic: str = "t"
) -> FetchRequest:
    return FetchRequest(
        session_id=session,
        session_epoch=epoch,
        topics=[FetchTopic(topic=topic, partitions=[FetchPartition(partition=number) for number in numbers])],
        forgotten_topics_data=[ForgottenTopic(topic=topic, partitions=list(forget))],
    )


def response(*answers: PartitionData, topic: str = "t") -> FetchResponse:
    return FetchResponse(responses=[FetchableTopicResponse(topic=topic, partitions=list(answers))])


def answer(number: int, *, records: bytes | None = None, error: int = 0, end: int = 0, start: int = 0) -> PartitionData:
    return PartitionData(
        partition_index=number, records=records, error_code=error, high_watermark=end, log_start_offset=start
    )


def begun(sessions: FetchSessions, *numbers: int, now: int = NOW) -> FetchSession:
    session = sessions.begun(request(*numbers), VERSION, now)
    assert session is not None
    session.answer(0, response(*map(answer, numbers)))
    return session


def told(session: FetchSession, *answers: PartitionData) -> list[int]:
    """The partitions of an incremental response that are told."""
    session.epoch = 2
    found = session.answer(1, response(*answers))
    return [part.partition_index for topic in found.responses for part in topic.partitions]


def order(session: FetchSession) -> list[int]:
    return [ask.partition for topic in session.topics() for ask in topic.partitions]


@pytest.mark.parametrize(
    "news",
    [
        {"records": b"x"},
        {"error": ErrorCode.NOT_LEADER_OR_FOLLOWER},
        {"end": 1},
        {"start": 1},
    ],
)
def test_what_changed_is_told(news: dict[str, int]) -> None:
    session = begun(FetchSessions(1, ids()), 0, 1)
    assert told(session, answer(0), answer(1)) == []
    assert told(session, answer(0), answer(1, **news)) == [1]  # type: ignore[arg-type]


def test_a_preferred_replica_and_a_diverging_epoch_are_told() -> None:
    session = begun(FetchSessions(1, ids()), 0, 1)
    preferred, diverging = answer(0), answer(1)
    preferred.preferred_read_replica = 7
    diverging.diverging_epoch = EpochEndOffset(epoch=1, end_offset=5)
    assert told(session, preferred, diverging) == [0, 1]
    # After a divergence, as after an error, the partition is told again.
    assert told(session, answer(0), answer(1)) == [1]


def test_a_partition_whose_error_goes_away_is_told_although_nothing_else_changed() -> None:
    session = begun(FetchSessions(1, ids()), 0)
    failed = answer(0, error=ErrorCode.KAFKA_STORAGE_ERROR, end=-1)
    assert [told(session, failed), told(session, failed)] == [[0], [0]]
    assert [told(session, answer(0)), told(session, answer(0))] == [[0], []]


def test_partitions_with_records_are_read_last_next_time() -> None:
    """With a bound on the bytes, those at the end would starve."""
    session = begun(FetchSessions(1, ids()), 0, 1, 2)
    told(session, answer(0, records=b"x"), answer(1), answer(2))
    assert order(session) == [1, 2, 0]
    told(session, answer(1, records=b"x"), answer(2, records=b"x"), answer(0))
    assert order(session) == [0, 1, 2]


def test_an_incremental_request_changes_adds_and_forgets() -> None:
    sessions = FetchSessions(1, ids())
    session = begun(sessions, 0, 1)
    ask = request(1, 2, session=session.session_id, epoch=1, forget=(0, 9))
    ask.topics[0].partitions[0].fetch_offset = 44
    assert sessions.continued(ask, VERSION, NOW) is session
    assert [(one.partition, one.fetch_offset) for one in session.topics()[0].partitions] == [(1, 44), (2, 0)]
    assert (len(sessions), sessions.partitions, session.epoch) == (1, 2, 2)


def test_a_session_without_partitions_ends() -> None:
    sessions = FetchSessions(1, ids())
    session = begun(sessions, 0)
    assert sessions.continued(request(session=session.session_id, epoch=1, forget=(0,)), VERSION, NOW) is None
    assert (len(sessions), sessions.partitions) == (0, 0)
    assert sessions.begun(FetchRequest(session_epoch=0), VERSION, NOW) is None


@pytest.mark.parametrize(
    ("session_id", "epoch", "version", "code"),
    [
        (2, 1, 12, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (0, 1, 12, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (1, 2, 12, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (1, 1, 13, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_refusals(session_id: int, epoch: int, version: int, code: ErrorCode) -> None:
    sessions = FetchSessions(1, ids())
    begun(sessions, 0)
    with pytest.raises(SessionError) as refused:
        sessions.continued(request(session=session_id, epoch=epoch), version, NOW)
    assert refused.value.code == code
    assert sessions.continued(request(session=1, epoch=1), 12, NOW) is not None


def test_the_response_to_a_request_that_another_one_overtook_is_refused() -> None:
    """As in `IncrementalFetchContext.updateAndGenerateResponseData`: two requests of one session wait at once."""
    sessions = FetchSessions(1, ids())
    session = begun(sessions, 0)
    for epoch in (1, 2):
        assert sessions.continued(request(session=1, epoch=epoch), VERSION, NOW) is session
    assert session.answer(1, response(answer(0, records=b"x"))).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert session.answer(2, response(answer(0, records=b"x"))).responses[0].partitions[0].records == b"x"


def test_one_follows_the_last_epoch() -> None:
    sessions = FetchSessions(1, ids())
    session = begun(sessions, 0)
    session.epoch = 2**31 - 1
    assert sessions.continued(request(session=1, epoch=2**31 - 1), VERSION, NOW) is session
    assert session.epoch == 1


def test_a_full_cache_declines_and_evicts_the_stale_and_the_smaller_old_ones() -> None:
    """As `FetchSessionCache.tryEvict`."""
    sessions = FetchSessions(2, ids())
    small, large = begun(sessions, 0), begun(sessions, 0, 1, 2)
    assert sessions.begun(request(0, 1), VERSION, NOW) is None
    later = NOW + EVICTION_MS + 1
    for session in (small, large):  # both are in use: neither is stale
        sessions.continued(request(session=session.session_id, epoch=1), VERSION, later)
    assert sessions.begun(request(0), VERSION, later) is None  # not larger than the smallest
    assert sessions.begun(request(0, 1), VERSION, later) is not None
    assert (len(sessions), sessions.partitions, sessions.evictions) == (2, 5, 1)
    with pytest.raises(SessionError):
        sessions.continued(request(session=small.session_id, epoch=2), VERSION, later)
    assert begun(sessions, 0, now=later + EVICTION_MS + 1)  # all are stale now
    assert (len(sessions), sessions.evictions) == (2, 2)


def test_a_session_that_is_used_does_not_become_stale() -> None:
    sessions = FetchSessions(2, ids())
    one, two = begun(sessions, 0), begun(sessions, 0)
    sessions.continued(request(session=one.session_id, epoch=1), VERSION, NOW + EVICTION_MS)
    begun(sessions, 0, now=NOW + EVICTION_MS + 1)
    with pytest.raises(SessionError):
        sessions.continued(request(session=two.session_id, epoch=1), VERSION, NOW)
    assert sessions.continued(request(session=one.session_id, epoch=2), VERSION, NOW) is one


def test_no_slots_no_sessions() -> None:
    assert FetchSessions(0, ids()).begun(request(0), VERSION, NOW) is None


def test_the_partitions_of_all_sessions_are_bounded() -> None:
    sessions = FetchSessions(2, ids())
    session = begun(sessions, *range(PARTITIONS_PER_SLOT))
    assert sessions.begun(request(*range(PARTITIONS_PER_SLOT + 1)), VERSION, NOW) is None
    begun(sessions, *range(PARTITIONS_PER_SLOT))
    with pytest.raises(SessionError):  # it may not grow by a request either
        sessions.continued(request(PARTITIONS_PER_SLOT, session=session.session_id, epoch=1), VERSION, NOW)
    assert (len(sessions), sessions.partitions) == (1, PARTITIONS_PER_SLOT)


def test_an_id_is_positive_and_not_in_use() -> None:
    drawn = iter([b"\0\0\0\0", b"\x80\0\0\0", b"\0\0\0\1", b"\0\0\0\1", b"\xff\xff\xff\xff"])
    sessions = FetchSessions(2, lambda size: next(drawn))
    assert [begun(sessions, 0).session_id, begun(sessions, 0).session_id] == [1, 2**31 - 1]
