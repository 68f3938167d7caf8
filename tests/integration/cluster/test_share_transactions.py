"""Transactions that acknowledge records of a share group in a cluster: leaders, coordinators and states are apart."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from fencepost.broker.cluster.ownership import spread
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api10_find_coordinator import FindCoordinatorRequest
from tests.kit.many_brokers import BROKERS, ManyBrokers
from tests.kit.postgres_server import PostgresServer
from tests.kit.share_members import ACCEPT, REJECT, Ack, ShareMember, begin_queue, knows_group, topic_id_of
from tests.kit.share_transactions import UNSTABLE, Transactions
from tests.kit.waiting import until
from tests.kit.wire import Wire, batch_of

pytestmark = pytest.mark.timeout(300)
NONE = ErrorCode.NONE


class Transacting(ManyBrokers):
    """Brokers that serve the API, which may still change."""

    def settings_of(self, number: int) -> dict[str, str]:
        return UNSTABLE


@pytest.fixture(scope="module")
def cluster(server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ManyBrokers]:
    with Transacting(Path(tmp_path_factory.mktemp("transactions")), server) as processes:
        processes.start_all()
        processes.make("jobs")
        yield processes


def connect(cluster: ManyBrokers, key_type: int, name: str) -> Wire:
    """To the coordinator of a group (0) or a transactional id (1)."""
    any_broker = next(broker for broker in cluster.brokers.values() if broker.running)
    with Wire(any_broker.connect()) as wire:
        [found] = wire.call(10, 4, FindCoordinatorRequest(key_type=key_type, coordinator_keys=[name])).coordinators
    return Wire(cluster.brokers[found.node_id].connect())


@contextmanager
def transactions(cluster: ManyBrokers, name: str) -> Iterator[Transactions]:
    with connect(cluster, 1, name) as wire:
        yield Transactions(wire, name)


def say(txn: Transactions, member: ShareMember, *acks: Ack) -> list[ErrorCode]:
    """TxnShareAcknowledge to the leader."""
    answer = member.wire.call(ApiKey.TXN_SHARE_ACKNOWLEDGE, 0, txn.request(member, *acks))
    if answer.error_code:
        return [ErrorCode(answer.error_code)]
    return [ErrorCode(part.error_code) for topic in answer.responses for part in topic.partitions]


@contextmanager
def members(cluster: ManyBrokers, group: str, each: int = 1) -> Iterator[list[ShareMember]]:
    """A group with a member for some partitions of each leader, each partition with four records."""
    with connect(cluster, 0, group) as wire, ExitStack() as stack:
        begin_queue(wire, group, "jobs")
        topic_id = topic_id_of(wire, "jobs")
        found: dict[int, list[ShareMember]] = {number: [] for number in BROKERS}
        for partition, leader in cluster.leaders("jobs").items():
            if len(found[leader]) < each:
                leading = stack.enter_context(Wire(cluster.brokers[leader].connect()))
                until(partial(knows_group, leading, group, share_auto_offset_reset="earliest"))
                leading.produce("jobs", batch_of(b"0", b"1", b"2", b"3"), partition=partition)
                found[leader].append(ShareMember(leading, group, f"one-{partition}", topic_id, [partition]))
        yield [member for some in found.values() for member in some]


def all_of(member: ShareMember, count: int) -> list[tuple[int, int]]:
    """What a member acquires, which may come in parts: a new leader reads the log from the stores."""
    found = member.acquire(wait_ms=30_000)
    while len(found) < count:
        found += member.acquire(wait_ms=30_000)
    return found


def test_a_commit_counts_and_an_abort_gives_them_back(cluster: ManyBrokers) -> None:
    """As on a broker alone, with each leader, whichever brokers keep the state and coordinate the transaction."""
    with members(cluster, "both", each=3) as workers, transactions(cluster, "both") as txn:
        held = {}
        for member in workers:
            [partition] = member.partitions
            *before, (first, _), _, _, _ = member.acquire()
            held[partition] = first
            for offset, _ in before:
                assert member.acknowledge(Ack(partition, offset, offset, ACCEPT)) == [0]
            assert say(txn, member, Ack(partition, first, first, ACCEPT)) == [NONE]
            assert say(txn, member, Ack(partition, first, first, ACCEPT)) == [NONE], "repeated"
            assert say(txn, member, Ack(partition, first + 1, first + 1, REJECT)) == [NONE]
            assert member.acknowledge(Ack(partition, first, first, ACCEPT)) == [ErrorCode.INVALID_RECORD_STATE]
        assert txn.end(commit=True) is NONE
        for member in workers:
            [partition] = member.partitions
            first = held[partition]
            assert say(txn, member, Ack(partition, first + 2, first + 3, ACCEPT)) == [NONE]
            assert member.acquire(wait_ms=100) == []
        assert txn.end(commit=False) is NONE
        for member in workers:
            [partition] = member.partitions
            first = held[partition]
            assert member.acquire(wait_ms=30_000) == [(first + 2, 2), (first + 3, 2)]
            assert member.acknowledge(Ack(partition, first + 2, first + 3, ACCEPT)) == [0]


def test_refusals_leave_them_with_the_member(cluster: ManyBrokers) -> None:
    """A fenced producer: the records are with the member as before."""
    with members(cluster, "fenced") as workers, transactions(cluster, "fenced") as old, transactions(cluster, "fenced"):
        for member in workers:
            [partition] = member.partitions
            (first, _), *_, (last, _) = member.acquire()
            [error] = say(old, member, Ack(partition, first, last, ACCEPT))
            assert error in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
            assert member.acknowledge(Ack(partition, first, last, ACCEPT)) == [0]


@pytest.mark.parametrize("commit", [True, False])
def test_a_leader_that_is_killed_while_they_are_pending(cluster: ManyBrokers, commit: bool) -> None:
    """The next leader reads what is pending with the state, and learns its end from there."""
    group = f"killed-{commit}"
    with members(cluster, group, each=3) as workers, transactions(cluster, group) as txn:
        coordinator = txn.wire.socket.getpeername()[1]
        leader = next(number for number in BROKERS if cluster.brokers[number].port != coordinator)
        led = {one for one, number in cluster.leaders("jobs").items() if number == leader}
        some = {member.partitions[0]: member for member in workers if member.partitions[0] in led}
        held = {}
        for partition, member in some.items():
            held[partition] = [offset for offset, _ in member.acquire()]
            assert say(txn, member, Ack(partition, *held[partition][:2], ACCEPT)) == [NONE]
        cluster.brokers[leader].kill()
        now = until(lambda: cluster.leaders("jobs"), lambda found: leader not in found.values())
        try:
            with ExitStack() as stack:
                again = {}
                for partition, member in some.items():
                    wire = stack.enter_context(Wire(cluster.brokers[now[partition]].connect()))
                    again[partition] = ShareMember(wire, group, f"two-{partition}", member.topic_id, [partition])
                    others = held[partition][2:]
                    assert all_of(again[partition], len(others)) == [(offset, 1) for offset in others]
                    assert again[partition].acknowledge(Ack(partition, others[0], others[-1], ACCEPT)) == [0]
                assert txn.end(commit=commit) is NONE
                for partition, member in again.items():
                    found = member.acquire(wait_ms=1_000) if commit else all_of(member, 2)
                    assert found == ([] if commit else [(offset, 2) for offset in held[partition][:2]])
        finally:
            cluster.brokers[leader].start()
            until(lambda: cluster.owners() == spread(frozenset(BROKERS)))
