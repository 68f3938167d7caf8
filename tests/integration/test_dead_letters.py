"""Dead-letter topics of share groups, with a real broker over the wire (G9, KIP-1191)."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from fencepost.protocol.compression import Compression
from fencepost.protocol.record_batch import build_batch
from fencepost.protocol.records import Record
from tests.conftest import StartBroker
from tests.kit.broker_process import BrokerProcess
from tests.kit.share_members import (
    ACCEPT,
    REJECT,
    RELEASE,
    Ack,
    ShareMember,
    configure_group,
    initialize,
    topic_id_of,
)
from tests.kit.wire import NOW_MS, Wire, batch_of, records_in

GROUP, LETTERS = "workers", "dlq.jobs"
Joins = Callable[[str], ShareMember]


@pytest.fixture
def broker(start_broker: StartBroker) -> BrokerProcess:
    return start_broker(files=True, settings={"errors.deadletterqueue.auto.create.topics.enable": "true"})


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[Wire]:
    with Wire(broker.connect()) as wire:
        wire.create_topic("jobs")
        initialize(wire, GROUP, topic_id_of(wire, "jobs"), [0])
        yield wire


@pytest.fixture
def member(broker: BrokerProcess) -> Iterator[Joins]:
    """Makes members, each with a connection of its own."""
    with ExitStack() as stack:

        def join(name: str) -> ShareMember:
            wire = stack.enter_context(Wire(broker.connect()))
            return ShareMember(wire, GROUP, name, topic_id_of(wire, "jobs"))

        yield join


def letters(wire: Wire, count: int) -> list[Record]:
    """The dead letters, once there are as many."""
    deadline, found = time.monotonic() + 10, list[Record]()
    while len(found) < count and time.monotonic() < deadline:
        answer = wire.fetch(LETTERS)
        found = [] if answer.error_code else records_in(answer)
        time.sleep(0.01)
    return found


def said(record: Record, header: str) -> str:
    return (dict(record.headers)[f"__dlq.errors.{header}"] or b"").decode()


def test_what_a_member_rejects_arrives_with_its_key_and_value(member: Joins, wire: Wire) -> None:
    """KIP-1191: in the topic that the broker made, by errors.deadletterqueue.copy.record.enable; batches as packed."""
    configure_group(
        wire,
        GROUP,
        errors_deadletterqueue_topic_name=LETTERS,
        errors_deadletterqueue_copy_record_enable="true",
    )
    jobs = [(NOW_MS, b"k%d" % n, b"v%d" % n, [("trace", b"1")]) for n in range(3)]
    wire.produce("jobs", build_batch(jobs, compression=Compression.GZIP))
    wire.produce("jobs", batch_of(b"last"))
    one = member("one")
    assert len(one.acquire(max_records=4)) == 4
    assert one.acknowledge(Ack(0, 0, 1, REJECT), Ack(0, 2, 2, ACCEPT), Ack(0, 3, 3, REJECT)) == [0]
    found = letters(wire, 3)
    assert [(one.key, one.value) for one in found] == [(b"k0", b"v0"), (b"k1", b"v1"), (None, b"last")]
    assert [name for name, _ in found[2].headers] == [
        f"__dlq.errors.{name}" for name in ("topic", "partition", "offset", "group", "delivery.count", "message")
    ]
    assert [value for _, value in found[2].headers] == [
        b"jobs",
        b"0",
        b"3",
        b"workers",
        b"1",
        b"Offset rejected by client.",
    ]


def test_what_was_delivered_too_often_has_headers_only(member: Joins, wire: Wire) -> None:
    """KIP-1191: without a copy; a marker in the range is no record, and aborted ones are for read_committed none."""
    configure_group(
        wire,
        GROUP,
        errors_deadletterqueue_topic_name=LETTERS,
        share_delivery_count_limit="2",
        share_isolation_level="read_committed",
    )
    for number, commit in enumerate((True, False)):
        producer = wire.init_producer_id(f"t{number}")
        wire.add_partitions(f"t{number}", producer, "jobs", 0)
        data = batch_of(b"v", producer_id=producer[0], producer_epoch=producer[1], base_sequence=0, transactional=True)
        wire.produce("jobs", data, transactional_id=f"t{number}")
        wire.end_txn(f"t{number}", producer, commit=commit)
    wire.produce("jobs", batch_of(b"last"))  # offsets: 0 committed, 1 marker, 2 aborted, 3 marker, 4
    for name in ("one", "two"):
        one = member(name)
        while 4 not in {offset for offset, _ in one.acquire()}:
            pass
        one.wire.close()
    found = letters(wire, 2)
    assert [(said(one, "offset"), said(one, "delivery.count"), one.value) for one in found] == [
        ("0", "2", None),
        ("4", "2", None),
    ]
    assert {said(one, "message") for one in found} == {"Offset delivery count exceeded the threshold."}


def test_no_letter_is_lost_by_kill_9(broker: BrokerProcess, member: Joins, wire: Wire) -> None:
    """SharePartition.maybeResumeDlqArchiving: what stands as ARCHIVING is written again by the next leader."""
    configure_group(wire, GROUP, errors_deadletterqueue_topic_name=LETTERS)
    for number in range(20):
        wire.produce("jobs", batch_of(b"%d" % number))
    one = member("one")
    assert len(one.acquire()) == 20
    rejects = [Ack(0, offset, offset, REJECT if offset % 2 else RELEASE) for offset in range(20)]
    assert one.acknowledge(*rejects) == [0]
    broker.restart()
    with Wire(broker.connect()) as again:
        assert [offset for offset, _ in member("two").acquire()] == list(range(0, 20, 2))
        assert {int(said(one, "offset")) for one in letters(again, 10)} >= set(range(1, 20, 2))


def test_a_topic_that_does_not_permit_it_gets_nothing(broker: BrokerProcess, member: Joins, wire: Wire) -> None:
    """KIP-1191: without errors.deadletterqueue.group.enable; the records are archived all the same."""
    configure_group(wire, GROUP, errors_deadletterqueue_topic_name=LETTERS)
    wire.create_topic(LETTERS)
    for number in range(2):
        wire.produce("jobs", batch_of(b"%d" % number))
    one = member("one")
    assert len(one.acquire(max_records=2)) == 2
    assert one.acknowledge(Ack(0, 0, 0, REJECT), Ack(0, 1, 1, RELEASE)) == [0]
    assert one.acquire() == [(1, 2)]
    assert wire.fetch(LETTERS).high_watermark == 0
    assert "DLQ is not enabled on configured DLQ topic for share group: workers" in broker.log()
