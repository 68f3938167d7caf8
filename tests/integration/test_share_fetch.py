"""Share groups of a real broker over the wire (KIP-932): who gets which records, and what is kept."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from fencepost.broker.share.requests import STEP_PARTITIONS
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api20_delete_topics import DeleteTopicsRequest
from tests.kit.broker_process import BrokerProcess
from tests.kit.share_members import ACCEPT, REJECT, RELEASE, RENEW, Ack, ShareMember, initialize, topic_id_of
from tests.kit.wire import Wire, batch_of

GROUP = "workers"
Joins = Callable[[str], ShareMember]


@pytest.fixture
def wire(file_broker: BrokerProcess) -> Iterator[Wire]:
    with Wire(file_broker.connect()) as wire:
        wire.create_topic("jobs", partitions=2)
        initialize(wire, GROUP, topic_id_of(wire, "jobs"), [0, 1])
        for number in range(10):
            wire.produce("jobs", batch_of(b"%d" % number))
        yield wire


@pytest.fixture
def member(file_broker: BrokerProcess) -> Iterator[Callable[[str], ShareMember]]:
    """Makes members, each with a connection of its own."""
    with ExitStack() as stack:

        def join(name: str) -> ShareMember:
            wire = stack.enter_context(Wire(file_broker.connect()))
            return ShareMember(wire, GROUP, name, topic_id_of(wire, "jobs"))

        yield join


def test_two_members_share_a_partition(member: Joins, wire: Wire) -> None:
    """I8, KIP-932: one member at a time has a record; released ones come again and count it, rejected ones do not."""
    one, two = member("one"), member("two")
    assert one.acquire(max_records=4) == [(0, 1), (1, 1), (2, 1), (3, 1)]
    assert two.acquire(max_records=4) == [(4, 1), (5, 1), (6, 1), (7, 1)]
    assert one.acknowledge(Ack(0, 0, 1, ACCEPT), Ack(0, 2, 2, RELEASE), Ack(0, 3, 3, REJECT)) == [0]
    assert two.acquire(max_records=9) == [(2, 2), (8, 1), (9, 1)]
    assert one.acquire(wait_ms=50) == []
    assert one.acknowledge(Ack(0, 4, 4, ACCEPT)) == [ErrorCode.INVALID_RECORD_STATE]
    assert two.acquire(Ack(0, 2, 2, ACCEPT), Ack(0, 4, 9, ACCEPT), wait_ms=50) == []


def test_what_a_member_holds_comes_back_when_its_connection_ends(member: Joins, wire: Wire) -> None:
    """ShareSessionCache: a session ends with its connection; a fetch that waits gets the records at once."""
    one, two = member("one"), member("two")
    assert len(one.acquire()) == 10
    one.wire.close()
    assert two.acquire() == [(offset, 2) for offset in range(10)]


def test_acknowledgements_outlive_kill_9(file_broker: BrokerProcess, member: Joins, wire: Wire) -> None:
    """KIP-932: state is durable before an acknowledgement is answered; what was only acquired comes again."""
    one = member("one")
    assert len(one.acquire(max_records=6)) == 6
    assert one.acknowledge(Ack(0, 0, 3, ACCEPT), Ack(0, 5, 5, REJECT)) == [0]
    file_broker.restart()
    two = member("two")
    assert [offset for offset, _ in two.acquire()] == [4, 6, 7, 8, 9]


def test_stale_acknowledgements_after_a_restart(file_broker: BrokerProcess, member: Joins, wire: Wire) -> None:
    """The errors that a Kafka 4.3.1 answered, killed between acquisition and acknowledgement.

    SharePartitionManager.acknowledge: a share partition that no fetch began is unknown; one that asks for no records
    begins none (processShareFetch). SharePartition.fetchSubMapForAcknowledgementBatch: nothing in flight is
    INVALID_RECORD_STATE, beyond what is in flight is INVALID_REQUEST, below the start offset all is well.
    """
    one = member("one")
    assert len(one.acquire()) == 10
    assert one.acknowledge(Ack(0, 0, 1, ACCEPT)) == [0]
    file_broker.restart()
    one, two = member("one"), member("two")
    assert one.acquire(max_records=0, wait_ms=0) == []
    assert one.acknowledge(Ack(0, 2, 9, ACCEPT)) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert [offset for offset, _ in two.acquire(max_records=3)] == [2, 3, 4]
    answered = [
        one.acknowledge(Ack(0, *offsets, ACCEPT)) for offsets in ((0, 1), (1, 3), (2, 3), (2, 2), (8, 12), (12, 14))
    ]
    held, beyond = [ErrorCode.INVALID_RECORD_STATE], [ErrorCode.INVALID_REQUEST]
    assert answered == [[0], held, held, held, beyond, beyond]


def test_sessions_are_refused_as_by_kafka(member: Joins, wire: Wire) -> None:
    """newContext: no session, a wrong epoch, acknowledgements in the first request; epoch -1 releases what is held."""
    one, two = member("one"), member("two")
    one.epoch = 3
    assert one.fetch().error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    one.epoch = 0
    assert one.fetch(Ack(0, 0, 0, ACCEPT)).error_code == ErrorCode.INVALID_REQUEST
    assert len(one.acquire(max_records=3)) == 3
    one.epoch = 7
    assert one.fetch().error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    one.epoch = 1
    assert one.acknowledge(Ack(0, 0, 0, ACCEPT), final=True) == [0]
    found = two.acquire()  # maybe before the release is stored
    while len(found) < 9:
        found += two.acquire()
    assert sorted(found) == [(1, 2), (2, 2), *((offset, 1) for offset in range(3, 10))]


def test_a_renewal_reads_nothing(member: Joins, wire: Wire) -> None:
    """KIP-1222: is_renew_ack with limits of 0; a renewal elsewhere is INVALID_REQUEST."""
    one = member("one")
    assert len(one.acquire(max_records=3)) == 3
    answer = one.fetch(Ack(0, 0, 2, RENEW), renew=True)
    assert [part.acknowledge_error_code for topic in answer.responses for part in topic.partitions] == [0]
    assert [part.acquired_records for topic in answer.responses for part in topic.partitions] == [[]]
    assert one.acknowledge(Ack(0, 0, 0, RENEW)) == [ErrorCode.INVALID_REQUEST]
    assert one.acknowledge(Ack(0, 0, 2, RENEW), renew=True) == [0]


def test_a_topic_made_again_under_its_name_has_nothing_of_the_old_one(member: Joins, wire: Wire) -> None:
    """Share partitions belong to a topic's id: a session that names the old one gets UNKNOWN_TOPIC_ID."""
    one = member("one")
    assert len(one.acquire(max_records=3)) == 3
    wire.call(ApiKey.DELETE_TOPICS, 1, DeleteTopicsRequest(topic_names=["jobs"]))
    wire.create_topic("jobs", partitions=2)
    answer = one.fetch()
    assert [part.error_code for topic in answer.responses for part in topic.partitions] == [ErrorCode.UNKNOWN_TOPIC_ID]
    assert one.acknowledge(Ack(0, 0, 0, ACCEPT)) == [ErrorCode.UNKNOWN_TOPIC_ID]


def test_a_reset_counts_with_a_session_open(member: Joins, wire: Wire) -> None:
    """AlterShareGroupOffsets raises the state epoch: what the leader knew must not be written over the reset."""
    one = member("one")
    assert len(one.acquire(max_records=6)) == 6
    initialize(wire, GROUP, one.topic_id, [0], start_offset=8, epoch=2)
    assert one.acknowledge(Ack(0, 0, 5, ACCEPT)) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert one.acquire() == [(8, 1), (9, 1)]


def test_a_record_larger_than_max_bytes_is_delivered_alone(member: Joins, wire: Wire) -> None:
    """KAFKA-18936: max_bytes is no hard limit, else the group would never get past a large record."""
    wire.produce("jobs", batch_of(b"x" * 50_000), partition=1)
    wire.produce("jobs", batch_of(b"small"), partition=1)
    one = member("one")
    one.partitions = [1]
    assert one.acquire(max_bytes=1_000) == [(0, 1)]
    assert one.acquire(max_bytes=1_000) == [(1, 1)]


def test_acknowledgements_below_the_log_start_are_taken(member: Joins, wire: Wire) -> None:
    """SharePartitionTest.testAcknowledgeBatchPostLsoMovement: what DeleteRecords removed is done, without an error.

    Records at or above the new start are still the member's own. (Asked in confluentinc/librdkafka#5414)
    """
    one = member("one")
    assert len(one.acquire()) == 10
    wire.delete_records("jobs", 6)
    assert one.acknowledge(Ack(0, 0, 3, ACCEPT)) == [0]
    assert one.acquire(wait_ms=0) == []  # the partition learns of its log's new start
    assert one.acknowledge(Ack(0, 4, 7, ACCEPT)) == [0]
    assert one.acknowledge(Ack(0, 0, 0, ACCEPT), Ack(0, 8, 9, RELEASE)) == [0]
    assert one.acquire() == [(8, 2), (9, 2)]


def test_a_session_of_many_partitions_is_served_in_steps(file_broker: BrokerProcess) -> None:
    """As `docs/architecture.md` says of large requests: each partition is served, in any request of the session."""
    count = 2 * STEP_PARTITIONS + 1
    with Wire(file_broker.connect()) as wire, Wire(file_broker.connect()) as members:
        wire.create_topic("wide", partitions=count)
        topic_id = topic_id_of(wire, "wide")
        initialize(wire, GROUP, topic_id, range(count))
        for part in range(count):
            wire.produce("wide", batch_of(b"one"), partition=part)
        one = ShareMember(members, GROUP, "one", topic_id, range(count))
        acquired: list[tuple[int, int]] = []
        while len(acquired) < count:
            acquired += one.acquire(max_records=2 * count)
        assert acquired == [(0, 1)] * count
        assert one.acknowledge(*(Ack(part, 0, 0, ACCEPT) for part in range(count))) == [0] * count
        for part in range(count):
            wire.produce("wide", batch_of(b"two"), partition=part)
        assert one.acquire(max_records=2 * count, wait_ms=0) == [(1, 1)] * count
        again = one.fetch(*(Ack(part, 1, 1, RELEASE) for part in range(count)), max_records=0, wait_ms=0)
        errors = [part.acknowledge_error_code for topic in again.responses for part in topic.partitions]
        assert errors == [0] * count
        assert one.acquire(max_records=2 * count) == [(1, 2)] * count
