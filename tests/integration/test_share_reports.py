"""What users of Kafka's share groups reported since Kafka 4.1, replayed: each test names the report."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api20_delete_topics import DeleteTopicsRequest
from fencepost.protocol.messages.api78_share_fetch import ForgottenTopic
from tests.kit.broker_process import BrokerProcess
from tests.kit.share_members import ACCEPT, Ack, ShareMember, configure_group, initialize, topic_id_of
from tests.kit.wire import Wire, batch_of

GROUP = "workers"
LONG_MS = 60_000
"""A wait that no test should have to see the end of."""
Joins = Callable[..., ShareMember]


@pytest.fixture
def wire(file_broker: BrokerProcess) -> Iterator[Wire]:
    with Wire(file_broker.connect()) as wire:
        wire.create_topic("jobs", partitions=2)
        initialize(wire, GROUP, topic_id_of(wire, "jobs"), [0, 1])
        yield wire


@pytest.fixture
def member(file_broker: BrokerProcess) -> Iterator[Joins]:
    """Makes members, each with a connection of its own."""
    with ExitStack() as stack:

        def join(name: str, partitions: tuple[int, ...] = (0,)) -> ShareMember:
            wire = stack.enter_context(Wire(file_broker.connect()))
            return ShareMember(wire, GROUP, name, topic_id_of(wire, "jobs"), partitions)

        yield join


def test_acknowledgements_make_room_for_the_fetch_that_brings_them(member: Joins, wire: Wire) -> None:
    """KAFKA-19227: a full window moves on with them; the fetch slept to the end of its wait."""
    configure_group(wire, GROUP, share_partition_max_record_locks="100")
    for _ in range(2):
        wire.produce("jobs", batch_of(*[b"x"] * 100))
    one = member("one")
    assert [offset for offset, _ in one.acquire()] == list(range(100))
    assert one.acquire(wait_ms=0) == [], "the window is full"
    began = time.monotonic()
    assert [offset for offset, _ in one.acquire(Ack(0, 0, 99, ACCEPT), wait_ms=LONG_MS)] == list(range(100, 200))
    assert time.monotonic() - began < LONG_MS / 2000


@pytest.mark.parametrize("what", ["deleted", "reset"])
def test_a_fetch_that_waits_is_answered_when_its_share_partition_goes(member: Joins, wire: Wire, what: str) -> None:
    """KAFKA-19567: it was trapped until its wait was over, and longer where many waited."""
    one = member("one")
    assert one.acquire(wait_ms=0) == []
    one.wire.send(ApiKey.SHARE_FETCH, 2, one.fetch_request(wait_ms=LONG_MS))
    time.sleep(0.3)
    began = time.monotonic()
    if what == "deleted":
        wire.call(ApiKey.DELETE_TOPICS, 1, DeleteTopicsRequest(topic_names=["jobs"]))
    else:
        initialize(wire, GROUP, one.topic_id, [0], start_offset=0, epoch=2)
    _, answer = one.wire.receive(ApiKey.SHARE_FETCH, 2)
    assert time.monotonic() - began < LONG_MS / 2000
    [code] = [part.error_code for topic in answer.responses for part in topic.partitions]
    assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_acknowledgements_of_a_partition_that_is_forgotten_are_taken(member: Joins, wire: Wire) -> None:
    """confluentinc/librdkafka#5393: they come before the session forgets it, and it is read no more."""
    for partition in (0, 1):
        wire.produce("jobs", batch_of(b"a", b"b"), partition=partition)
    one = member("one", (0, 1))
    found = one.acquire()
    while len(found) < 4:
        found += one.acquire()
    request = one.fetch_request(Ack(0, 0, 0, ACCEPT), Ack(1, 0, 1, ACCEPT), wait_ms=0)
    request.forgotten_topics_data = [ForgottenTopic(topic_id=one.topic_id, partitions=[0])]
    assert one.taken(one.wire.call(ApiKey.SHARE_FETCH, 2, request)) == []
    one.epoch += 1
    wire.produce("jobs", batch_of(b"c"), partition=0)
    wire.produce("jobs", batch_of(b"c"), partition=1)
    assert one.acquire() == [(2, 1)], "of partition 1 alone"
    assert one.acknowledge(Ack(0, 1, 1, ACCEPT)) == [0], "it still holds the other one"


def test_the_last_fetch_of_a_session_may_acknowledge(member: Joins, wire: Wire) -> None:
    """confluentinc/librdkafka#5393: epoch -1 brings acknowledgements, reads nothing, and gives back all others."""
    wire.produce("jobs", batch_of(b"a", b"b", b"c"))
    one, two = member("one"), member("two")
    assert len(one.acquire(max_records=3)) == 3
    assert one.acquire(Ack(0, 1, 1, ACCEPT), final=True) == []
    found = two.acquire()
    while len(found) < 2:
        found += two.acquire()
    assert sorted(found) == [(0, 2), (2, 2)]


def test_what_a_member_held_comes_back_around_what_another_holds(member: Joins, wire: Wire) -> None:
    """KAFKA-19953: of a batch that several members share, what lay behind the first offset of another stayed locked."""
    wire.produce("jobs", batch_of(b"a", b"b", b"c", b"d", b"e"))
    one, two, three = member("one"), member("two"), member("three")
    assert one.acquire(max_records=2) == [(0, 1), (1, 1)]
    assert two.acquire(max_records=1) == [(2, 1)]
    assert one.acquire(max_records=1) == [(3, 1)]
    one.wire.close()
    found = three.acquire()
    while len(found) < 4:
        found += three.acquire()
    assert sorted(found) == [(0, 2), (1, 2), (3, 2), (4, 1)]
    assert two.acknowledge(Ack(0, 2, 2, ACCEPT)) == [0]


@pytest.mark.parametrize("mode", [0, 1], ids=["batch_optimized", "record_limit"])
def test_a_batch_that_begins_below_the_start_comes_once(
    file_broker: BrokerProcess, member: Joins, wire: Wire, mode: int
) -> None:
    """KAFKA-19954: after a restart it was put in flight twice, one over the other."""
    wire.produce("jobs", batch_of(*[b"x"] * 100))
    one = member("one")
    assert [offset for offset, _ in one.acquire(max_records=5)] == list(range(5))
    assert one.acknowledge(Ack(0, 0, 4, ACCEPT)) == [0]
    file_broker.restart()
    one, acks, found = member("one"), [], []
    while len(found) < 95:
        taken = [offset for offset, _ in one.acquire(*acks, max_records=5, mode=mode)]
        acks = [Ack(0, offset, offset, ACCEPT) for offset in taken]
        found += taken
    assert found == list(range(5, 100))
    assert one.acquire(*acks, wait_ms=0) == []


def test_a_partition_that_is_always_full_does_not_starve_the_others(member: Joins, wire: Wire) -> None:
    """confluentinc/librdkafka#5393, PartitionRotateStrategy: each request begins at the next partition."""
    wire.produce("jobs", batch_of(*[b"x"] * 50), partition=0)
    wire.produce("jobs", batch_of(b"y"), partition=1)
    one = member("one", (0, 1))
    found = [
        {
            part.partition_index
            for topic in one.fetch(max_records=1, wait_ms=1_000).responses
            for part in topic.partitions
            if part.acquired_records
        }
        for _ in range(6)
    ]
    assert {1} in found
