"""Acknowledgements that belong to transactions, over the wire to a real broker (after KIP-1289's draft)."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api18_api_versions import ApiVersionsRequest
from fencepost.protocol.messages.api20_delete_topics import DeleteTopicsRequest
from fencepost.protocol.messages.api42_delete_groups import DeleteGroupsRequest
from fencepost.protocol.messages.api76_share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.conftest import StartBroker
from tests.kit.broker_process import BrokerProcess
from tests.kit.share_members import ACCEPT, REJECT, RELEASE, Ack, ShareMember, initialize, topic_id_of
from tests.kit.share_transactions import UNSTABLE, Transactions
from tests.kit.waiting import until
from tests.kit.wire import Wire, batch_of, committed_values

GROUP = "workers"
ALL = [(offset, 1) for offset in range(10)]
AGAIN = [(offset, 2) for offset in range(10)]
NONE, REFUSED = ErrorCode.NONE, ErrorCode.INVALID_RECORD_STATE
QUICK_LOCKS = {"group.share.record.lock.duration.ms": "1000", "group.share.min.record.lock.duration.ms": "1000"}


@pytest.fixture
def broker(start_broker: StartBroker, request: pytest.FixtureRequest) -> BrokerProcess:
    return start_broker(files=True, settings={**UNSTABLE, **getattr(request, "param", {})})


@pytest.fixture
def new_wire(broker: BrokerProcess) -> Iterator[Callable[[], Wire]]:
    """Makes connections; the topic `jobs` has ten records, `out` none."""
    with ExitStack() as stack:

        def connect() -> Wire:
            return stack.enter_context(Wire(broker.connect()))

        wire = connect()
        wire.create_topic("jobs", partitions=2)
        wire.create_topic("out")
        initialize(wire, GROUP, topic_id_of(wire, "jobs"), [0, 1])
        for number in range(10):
            wire.produce("jobs", batch_of(b"%d" % number))
        yield connect


Connect = Callable[[], Wire]


def member(new_wire: Connect, name: str) -> ShareMember:
    wire = new_wire()
    return ShareMember(wire, GROUP, name, topic_id_of(wire, "jobs"))


def output(new_wire: Connect) -> list[bytes | None]:
    return committed_values(new_wire().fetch("out", isolation=1))


def begun(new_wire: Connect, timeout_ms: int = 60_000) -> tuple[ShareMember, Transactions]:
    """A member whose ten records are in an open transaction, with one record of output."""
    one, work = member(new_wire, "one"), Transactions(new_wire(), "work", timeout_ms)
    assert one.acquire() == ALL
    assert work.produce("out", b"result") is NONE
    assert work.ack(one, Ack(0, 0, 9, ACCEPT)) == [NONE]
    return one, work


def test_a_commit_makes_output_and_acknowledgements_count_at_once(new_wire: Connect) -> None:
    """KIP-1289: pending records are not delivered; after the commit they are done."""
    one, work = begun(new_wire)
    two = member(new_wire, "two")
    assert two.acquire(wait_ms=50) == []
    assert work.end(commit=True) is NONE
    assert output(new_wire) == [b"result"]
    new_wire().produce("jobs", batch_of(b"10"))
    assert two.acquire() == [(10, 1)]
    assert one.acknowledge(Ack(0, 0, 9, RELEASE)) == [NONE]  # below the start offset: nothing happens
    assert two.acquire(wait_ms=50) == []


def test_what_was_committed_is_durable_with_its_marker(broker: BrokerProcess, new_wire: Connect) -> None:
    _, work = begun(new_wire)
    assert work.end(commit=True) is NONE
    broker.restart()
    assert member(new_wire, "two").acquire(wait_ms=200) == []


def test_each_kind_and_each_partition_of_a_request(new_wire: Connect) -> None:
    """A request has partitions and kinds; what is refused leaves the rest, and its error says to abort."""
    wire = new_wire()
    wire.produce("jobs", batch_of(b"x"), partition=1)
    one, work = member(new_wire, "one"), Transactions(wire, "work")
    one.partitions = [0, 1]
    assert len(one.acquire()) == 11
    assert work.ack(one, Ack(0, 0, 3, ACCEPT), Ack(0, 4, 6, REJECT), Ack(0, 7, 9, 0), Ack(1, 0, 0, ACCEPT)) == [0, 0]
    assert work.ack(one, Ack(0, 0, 3, ACCEPT)) == [NONE], "repeated"
    assert work.ack(one, Ack(0, 0, 3, REJECT)) == [REFUSED], "another kind"
    assert work.ack(one, Ack(0, 0, 3, RELEASE)) == [ErrorCode.INVALID_REQUEST]
    assert one.acknowledge(Ack(0, 0, 3, RELEASE)) == [REFUSED]
    assert work.end(commit=True) is NONE
    assert one.acquire(wait_ms=50) == []


def test_an_abort_gives_them_back_to_a_fetch_that_waits(new_wire: Connect) -> None:
    """KIP-1289: available at once, with their delivery count; the output is not seen."""
    _, work = begun(new_wire)
    two = member(new_wire, "two")
    sent = two.wire.send(ApiKey.SHARE_FETCH, 2, two.fetch_request(wait_ms=20_000))
    assert work.end(commit=False) is NONE
    correlation_id, answer = two.wire.receive(ApiKey.SHARE_FETCH, 2)
    assert correlation_id == sent
    assert two.taken(answer) == AGAIN
    assert output(new_wire) == []


def test_a_timeout_gives_them_back(new_wire: Connect) -> None:
    """The coordinator's expiry (row T10) aborts like a client."""
    _, work = begun(new_wire, timeout_ms=1_000)
    assert member(new_wire, "two").acquire(wait_ms=20_000) == AGAIN
    assert work.ack(member(new_wire, "one"), Ack(0, 0, 0, ACCEPT)) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert work.end(commit=True) is not NONE


def test_a_successor_fences_and_gives_them_back(new_wire: Connect) -> None:
    """InitProducerId aborts the transaction of the producer before, which cannot acknowledge any more (row P4)."""
    one, work = begun(new_wire)
    successor = Transactions(new_wire(), "work")
    two = member(new_wire, "two")
    assert two.acquire() == AGAIN
    assert work.ack(one, Ack(0, 0, 0, ACCEPT)) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert successor.ack(one, Ack(0, 0, 0, ACCEPT)) == [REFUSED], "it is with the other member now"
    assert successor.ack(two, Ack(0, 0, 9, ACCEPT)) == [NONE]
    assert successor.end(commit=True) is NONE


@pytest.mark.parametrize("commit", [True, False])
def test_a_restart_while_pending(broker: BrokerProcess, new_wire: Connect, commit: bool) -> None:
    """The share coordinator's log has them; the leader holds them back until the transaction that it found ends."""
    _, work = begun(new_wire)
    broker.restart()
    two = member(new_wire, "two")
    assert two.acquire(wait_ms=200) == []
    work.wire = new_wire()
    assert work.end(commit=commit) is NONE
    assert two.acquire(wait_ms=200) == ([] if commit else AGAIN)
    assert output(new_wire) == ([b"result"] if commit else [])


def test_a_restart_while_pending_and_a_timeout_after_it(broker: BrokerProcess, new_wire: Connect) -> None:
    begun(new_wire, timeout_ms=3_000)
    broker.restart()
    assert member(new_wire, "two").acquire(wait_ms=30_000) == AGAIN


@pytest.mark.parametrize("broker", [QUICK_LOCKS], indirect=True, ids=["locks of 1 s"])
def test_the_transaction_decides_and_not_the_lock(new_wire: Connect) -> None:
    """A lock that ends while the records are pending has no effect; before, it makes them another member's."""
    one, work = begun(new_wire)
    two = member(new_wire, "two")
    assert two.acquire(wait_ms=2_000) == [], "twice as long as locks last"
    assert work.end(commit=True) is NONE
    new_wire().produce("jobs", batch_of(b"10"))
    assert one.acquire() == [(10, 1)]
    assert two.acquire(wait_ms=5_000) == [(10, 2)]
    assert work.ack(one, Ack(0, 10, 10, ACCEPT)) == [REFUSED]
    assert two.acknowledge(Ack(0, 10, 10, ACCEPT)) == [NONE]
    assert work.ack(one, Ack(0, 10, 10, ACCEPT)) == [REFUSED], "done already, by another member"


def test_a_member_that_leaves_while_pending(new_wire: Connect) -> None:
    """What is pending is the transaction's: neither the end of the session nor of the connection gives it back."""
    one, work = begun(new_wire)
    assert one.acknowledge(final=True) == []
    one.wire.close()
    two = member(new_wire, "two")
    assert two.acquire(wait_ms=200) == []
    assert work.end(commit=False) is NONE
    assert two.acquire() == AGAIN


def test_no_member_is_left_while_pending(new_wire: Connect) -> None:
    """Without sessions the leader forgets the share partition: what it reads again has the open transaction."""
    one, work = begun(new_wire)
    one.wire.close()
    two = member(new_wire, "two")
    assert two.acquire(wait_ms=200) == []
    two.wire.close()
    assert work.end(commit=False) is NONE
    assert member(new_wire, "three").acquire() == AGAIN


def test_a_topic_deleted_while_pending(new_wire: Connect) -> None:
    """The state goes with the topic; the rest of the transaction commits, and a new topic begins anew."""
    _, work = begun(new_wire)
    wire = new_wire()
    wire.call(ApiKey.DELETE_TOPICS, 1, DeleteTopicsRequest(topic_names=["jobs"]))
    wire.create_topic("jobs", partitions=2)
    initialize(wire, GROUP, topic_id_of(wire, "jobs"), [0])
    wire.produce("jobs", batch_of(b"new"))
    assert work.end(commit=True) is NONE
    assert output(new_wire) == [b"result"]
    assert member(new_wire, "two").acquire() == [(0, 1)]


def test_a_group_deleted_while_pending(new_wire: Connect) -> None:
    """Its state is gone, as with committed offsets; a group of the same name begins anew."""
    wire = new_wire()

    def beat(epoch: int) -> Any:
        request = ShareGroupHeartbeatRequest(
            group_id="g", member_id="one", member_epoch=epoch, subscribed_topic_names=["jobs"]
        )
        return wire.call(ApiKey.SHARE_GROUP_HEARTBEAT, 1, request)

    until(lambda: (assignment := beat(0).assignment) is not None and assignment.topic_partitions != [])
    one = ShareMember(new_wire(), "g", "one", topic_id_of(wire, "jobs"))
    work = Transactions(new_wire(), "work")
    until(lambda: one.acquire(wait_ms=50) == [])  # it begins at the latest record
    wire.produce("jobs", batch_of(b"10"))
    assert one.acquire() == [(10, 1)]
    assert work.produce("out", b"result") is NONE
    assert work.ack(one, Ack(0, 10, 10, ACCEPT)) == [NONE]
    assert beat(-1).error_code == NONE
    one.wire.close()
    deleted = wire.call(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=["g"]))
    assert [result.error_code for result in deleted.results] == [NONE]
    initialize(wire, "g", topic_id_of(wire, "jobs"), [0], start_offset=10)
    two = ShareMember(new_wire(), "g", "two", topic_id_of(wire, "jobs"))
    assert two.acquire() == [(10, 1)]
    assert work.end(commit=True) is NONE
    assert output(new_wire) == [b"result"]
    assert two.acknowledge(Ack(0, 10, 10, RELEASE)) == [NONE]
    assert two.acquire() == [(10, 2)]


def test_it_is_not_served_unless_wanted(start_broker: StartBroker) -> None:
    """It is of no Kafka: `unstable.api.versions.enable`."""
    for settings in ({}, UNSTABLE):
        with Wire(start_broker(settings=settings).connect()) as wire:
            answer = wire.call(
                ApiKey.API_VERSIONS, 3, ApiVersionsRequest(client_software_name="w", client_software_version="1")
            )
            served = [key.api_key for key in answer.api_keys]
            assert (ApiKey.TXN_SHARE_ACKNOWLEDGE in served) == bool(settings)
