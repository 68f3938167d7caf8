"""Records that a real broker holds back from all members until a time (ours; docs/rules-queues.md)."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from fencepost.broker.share.values import DELAY_MS_MAX
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.compression import Compression
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api20_delete_topics import DeleteTopicsRequest
from fencepost.protocol.record_batch import build_batch
from tests.kit.broker_process import BrokerProcess
from tests.kit.share_members import ACCEPT, RELEASE, Ack, ShareMember, initialize, topic_id_of
from tests.kit.wire import Wire, batch_of

GROUP = "workers"
Joins = Callable[[str], ShareMember]


@pytest.fixture
def wire(file_broker: BrokerProcess) -> Iterator[Wire]:
    with Wire(file_broker.connect()) as wire:
        wire.create_topic("jobs", partitions=1)
        initialize(wire, GROUP, topic_id_of(wire, "jobs"), [0])
        for number in range(4):
            wire.produce("jobs", batch_of(b"%d" % number))
        yield wire


@pytest.fixture
def member(file_broker: BrokerProcess) -> Iterator[Joins]:
    """Makes members, each with a connection of its own."""
    with ExitStack() as stack:

        def join(name: str) -> ShareMember:
            wire = stack.enter_context(Wire(file_broker.connect()))
            return ShareMember(wire, GROUP, name, topic_id_of(wire, "jobs"), [0])

        yield join


def test_a_fetch_that_waits_gets_a_record_at_its_time(member: Joins, wire: Wire) -> None:
    """H1: not before, and without another request."""
    one, two = member("one"), member("two")
    assert len(one.acquire()) == 4
    released_at = time.monotonic()
    assert one.acknowledge(Ack(0, 0, 1, RELEASE, 1_000), Ack(0, 2, 3, RELEASE)) == [0]
    assert two.acquire() == [(2, 2), (3, 2)]
    assert two.acquire(wait_ms=5_000) == [(0, 2), (1, 2)]
    assert 1.0 <= time.monotonic() - released_at < 3.0


def test_it_outlives_kill_9_and_the_member(file_broker: BrokerProcess, member: Joins, wire: Wire) -> None:
    """H3: the time is stored with the release, by the wall clock."""
    one = member("one")
    assert len(one.acquire()) == 4
    released_at = time.monotonic()
    assert one.acknowledge(Ack(0, 0, 0, RELEASE, 4_000), Ack(0, 1, 1, RELEASE, 3_600_000)) == [0]
    file_broker.restart()
    two = member("two")
    assert two.acquire() == [(2, 1), (3, 1)]
    assert two.acquire(wait_ms=10_000) == [(0, 2)]
    assert time.monotonic() - released_at >= 4.0
    assert two.acquire(wait_ms=0) == []


def test_it_outlives_a_time_without_members(member: Joins, wire: Wire) -> None:
    """H3: a leader forgets a share partition that no member uses, and reads it again."""
    one = member("one")
    assert len(one.acquire()) == 4
    assert one.acknowledge(Ack(0, 0, 3, RELEASE, 3_600_000)) == [0]
    assert one.acknowledge(final=True) == []
    wire.produce("jobs", batch_of(b"4"))
    assert member("two").acquire() == [(4, 1)]


@pytest.mark.parametrize("delay_ms", [-1, DELAY_MS_MAX + 1])
def test_a_delay_that_is_none(member: Joins, wire: Wire, delay_ms: int) -> None:
    """H9, ours: INVALID_REQUEST, and the member holds its records as before."""
    one = member("one")
    assert len(one.acquire()) == 4
    assert one.acknowledge(Ack(0, 0, 3, RELEASE, delay_ms)) == [ErrorCode.INVALID_REQUEST]
    assert one.acknowledge(Ack(0, 0, 3, RELEASE, DELAY_MS_MAX)) == [0]


def test_deleted_records_a_reset_and_a_topic_made_again(member: Joins, wire: Wire) -> None:
    """H5: nothing of a record that is held back stays behind where the log or the group begins anew."""
    one = member("one")
    assert len(one.acquire()) == 4
    assert one.acknowledge(Ack(0, 0, 3, RELEASE, 3_600_000)) == [0]
    wire.delete_records("jobs", 2)
    assert one.acquire(wait_ms=0) == []
    initialize(wire, GROUP, one.topic_id, [0], start_offset=3)
    assert one.acquire(wait_ms=0) in ([], [(3, 1)])
    two = member("two")
    two.acquire(wait_ms=0)
    wire.call(ApiKey.DELETE_TOPICS, 1, DeleteTopicsRequest(topic_names=["jobs"]))
    wire.create_topic("jobs", partitions=1)
    initialize(wire, GROUP, topic_id_of(wire, "jobs"), [0])
    wire.produce("jobs", batch_of(b"new"))
    assert member("three").acquire() == [(0, 1)]


def test_the_broker_says_whether_it_holds_back(member: Joins, wire: Wire) -> None:
    """H9, decision 0016: only to who asks; others get Kafka's bytes."""
    one = member("one")
    request = one.fetch_request()
    assert wire.call(ApiKey.SHARE_FETCH, 2, request).delays is False
    request.delays, request.member_id = True, "two"
    assert wire.call(ApiKey.SHARE_FETCH, 2, request).delays is True


def test_a_group_with_a_record_held_back_takes_all_others(member: Joins, wire: Wire) -> None:
    """H7: the default limit of 2,000 records in flight does not count what is done behind it."""
    one = member("one")
    assert len(one.acquire()) == 4
    assert one.acknowledge(Ack(0, 0, 0, RELEASE, 3_600_000), Ack(0, 1, 3, ACCEPT)) == [0]
    for first in range(4, 3_004, 500):
        wire.produce("jobs", batch_of(*[b"x"] * 500))
        got = one.acquire(max_records=500)
        assert [offset for offset, _ in got] == list(range(first, first + 500))
        assert one.acknowledge(Ack(0, first, first + 499, ACCEPT)) == [0]


def scheduled(*delays_ms: int | None, codec: Compression = Compression.NONE) -> bytearray:
    """A batch of records that come so much later; None: without a time."""
    now_ms = time.time_ns() // 1_000_000
    headers = [() if one is None else (("not-before", b"%d" % (now_ms + one)),) for one in delays_ms]
    return build_batch([(now_ms, None, b"x" * 9, one) for one in headers], compression=codec)


@pytest.fixture
def topic_with_times(wire: Wire) -> bytes:
    wire.create_topic("later", partitions=1, share_not_before_enable="true")
    found = topic_id_of(wire, "later")
    initialize(wire, GROUP, found, [0])
    return found


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
def test_a_record_that_says_when(
    file_broker: BrokerProcess, wire: Wire, topic_with_times: bytes, codec: Compression
) -> None:
    """H11: not before its time, also after kill -9; its delivery count is 1 then."""
    produced_at = time.monotonic()
    wire.produce("later", scheduled(None, 4_000, 3_600_000, codec=codec))
    wire.produce("later", scheduled(None))
    with Wire(file_broker.connect()) as connection:
        one = ShareMember(connection, GROUP, "one", topic_with_times, [0])
        assert one.acquire() == [(0, 1), (3, 1)]
        assert one.acknowledge(Ack(0, 0, 0, ACCEPT), Ack(0, 3, 3, ACCEPT)) == [0]
    file_broker.restart()
    with Wire(file_broker.connect()) as connection:
        two = ShareMember(connection, GROUP, "two", topic_with_times, [0])
        assert two.acquire(wait_ms=10_000) == [(1, 1)]
        assert time.monotonic() - produced_at >= 4.0
        assert two.acknowledge(Ack(0, 1, 1, ACCEPT)) == [0]
        assert two.acquire(wait_ms=0) == []


def test_thousands_for_tomorrow_and_one_for_now(
    file_broker: BrokerProcess, wire: Wire, topic_with_times: bytes
) -> None:
    """H13, H14: in large compressed batches, which a thread unpacks; the limit in flight is 2,000."""
    for _ in range(6):
        wire.produce("later", scheduled(*[86_400_000] * 1_000, codec=Compression.GZIP))
    wire.produce("later", scheduled(*range(86_400_000, 86_402_000, 2), codec=Compression.GZIP))
    wire.produce("later", scheduled(None))
    with Wire(file_broker.connect()) as connection:
        one = ShareMember(connection, GROUP, "one", topic_with_times, [0])
        assert one.acquire(max_records=1, wait_ms=20_000) == [(7_000, 1)]
        wire.delete_records("later", 7_000)
        wire.produce("later", scheduled(None))
        assert one.acquire(Ack(0, 7_000, 7_000, ACCEPT)) == [(7_001, 1)]


def test_without_the_setting_a_time_says_nothing(member: Joins, wire: Wire) -> None:
    """H14: the broker looks into headers only where the topic has `share.not.before.enable`."""
    wire.produce("jobs", scheduled(3_600_000))
    assert [offset for offset, _ in member("one").acquire()] == [0, 1, 2, 3, 4]
