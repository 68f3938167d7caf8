"""Row T20 where several brokers coordinate: each must have answered, and nothing may have moved meanwhile."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import trio.testing

from fencepost.broker.cluster.engine import SLOTS, Slot, StoreUnavailable, log_id, slot_of
from fencepost.broker.cluster.ownership import Ownership
from fencepost.broker.cluster.serving.membership import Membership
from fencepost.broker.config.broker_config import load_config
from fencepost.broker.peers.other_coordinators import Held, NoAnswer, OtherCoordinators
from fencepost.broker.peers.peer import PeerUnavailable
from fencepost.broker.place import Alone, LeaderOf
from fencepost.coordinator.partitioning import partition_for
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import api65_describe_transactions as api65
from fencepost.protocol.messages import api66_list_transactions as api66
from fencepost.protocol.topics import TRANSACTION_TOPIC, TopicPartition
from tests.unit.broker.txn_node import ABORTING, MINUTE_S, TxnNode, hang, running

MockClock = trio.testing.MockClock
TOPIC_ID = bytes(range(16))
PARTITIONS = 50
OWN, OTHER = 1, 2
T0 = TopicPartition("t", 0)


class Topics:
    def topic_id(self, name: str) -> bytes:
        assert name == TRANSACTION_TOPIC
        return TOPIC_ID


class Cluster(Alone):
    """Two brokers: the other one owns the slots that `theirs` says."""

    def __init__(self, theirs: Callable[[int], bool] = lambda slot: True) -> None:
        super().__init__(load_config())
        assert self.node_id == OWN
        self.slots = [Slot(number, OTHER if theirs(number) else OWN, 7) for number in range(SLOTS)]
        self.links = self
        self.held: Held = set()
        self.probed, self.listed = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, ErrorCode.NONE
        self.while_asked: Callable[[], None] = lambda: None
        self.asked = 0

    async def newest_leaders(self) -> LeaderOf:
        return Ownership(OWN, self.slots).leader

    async def ask(self, broker: int, request: Any, version: int) -> Any:
        assert broker == OTHER
        self.asked += 1
        if isinstance(request, api66.ListTransactionsRequest):
            self.while_asked()
            states = [
                api66.TransactionState(transactional_id=f"held-{number}") for number, _ in enumerate(sorted(self.held))
            ]
            return api66.ListTransactionsResponse(error_code=self.listed, transaction_states=states)
        assert isinstance(request, api65.DescribeTransactionsRequest)
        found = {f"held-{number}": one for number, one in enumerate(sorted(self.held))}
        answers = []
        for name in request.transactional_ids:
            if name not in found:
                answers.append(api65.TransactionState(transactional_id=name, error_code=self.probed))
                continue
            producer_id, (topic, partition) = found[name]
            topics = [api65.TopicData(topic=topic, partitions=[partition])]
            answers.append(api65.TransactionState(transactional_id=name, producer_id=producer_id, topics=topics))
        return api65.DescribeTransactionsResponse(transaction_states=answers)


def others(cluster: Cluster) -> OtherCoordinators:
    return OtherCoordinators(cluster, Topics(), PARTITIONS)


async def test_what_other_brokers_will_end_is_known_when_all_have_answered() -> None:
    cluster = Cluster()
    cluster.held = {(5, TopicPartition("t", 0)), (6, TopicPartition("u", 3))}
    asked = others(cluster)
    owners = await asked.owners()
    assert owners[7] == (OTHER, 7)
    assert await asked.held(owners) == cluster.held
    assert cluster.asked == 3


def test_there_is_a_probe_for_each_partition() -> None:
    probes = others(Cluster())._probes
    assert [partition_for(name, PARTITIONS) for name in probes] == list(range(PARTITIONS))


def without_owner(cluster: Cluster) -> None:
    cluster.slots = [slot._replace(broker=None) for slot in cluster.slots]


def unreachable(cluster: Cluster) -> None:
    def fail() -> None:
        raise PeerUnavailable("broker 2 does not answer")

    cluster.while_asked = fail


def not_loaded(cluster: Cluster) -> None:
    cluster.probed = ErrorCode.NOT_COORDINATOR


def loading(cluster: Cluster) -> None:
    cluster.listed = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.parametrize(
    ("trouble", "why"),
    [
        (without_owner, "has no leader now"),
        (unreachable, "broker 2 does not answer"),
        (not_loaded, "broker 2 has not loaded its coordinators: NOT_COORDINATOR"),
        (loading, "broker 2 lists no transactions: COORDINATOR_LOAD_IN_PROGRESS"),
    ],
)
async def test_otherwise_nothing_is_known(trouble: Callable[[Cluster], None], why: str) -> None:
    cluster = Cluster()
    trouble(cluster)
    asked = others(cluster)
    with pytest.raises(NoAnswer, match=why):
        await asked.held(await asked.owners())


async def test_nor_if_the_database_does_not_answer() -> None:
    class Gone(Cluster):
        _engine = SimpleNamespace(slots=None)
        newest_leaders = Membership.newest_leaders

        async def in_thread(self, call: object) -> object:
            raise StoreUnavailable("no database")

    with pytest.raises(NoAnswer, match="no database"):
        await others(Gone()).owners()


async def with_others(on: TxnNode) -> tuple[Cluster, tuple[int, int]]:
    """A broker with a hanging transaction: another one coordinates all ids but those of the hanging one's shard."""
    held = await hang(on)
    node = on.node
    runtime = node.transactions.runtime
    topic_id = node.metadata.topic_id(TRANSACTION_TOPIC)
    assert topic_id is not None
    own = partition_for("orders", runtime.count)
    cluster = Cluster(lambda slot: slot != slot_of(log_id(topic_id, own)))
    for number in range(runtime.count):
        if slot_of(log_id(topic_id, number)) != slot_of(log_id(topic_id, own)):
            runtime.unload(number)
    node.place = cluster
    return cluster, held


async def test_a_transaction_that_no_coordinator_knows_is_aborted(autojump_clock: MockClock) -> None:
    async with running(*ABORTING) as on:
        await with_others(on)
        await trio.sleep(5 * MINUTE_S)
        assert on.node.hanging.aborted == 1


def holds(cluster: Cluster, on: TxnNode, held: tuple[int, int]) -> None:
    cluster.held = {(held[0], T0)}


def moves(cluster: Cluster, on: TxnNode, held: tuple[int, int]) -> None:
    def move() -> None:
        cluster.slots = [slot._replace(epoch=slot.epoch + 1) for slot in cluster.slots]

    cluster.while_asked = move


def writes(cluster: Cluster, on: TxnNode, held: tuple[int, int]) -> None:
    """The producer goes on while others are asked: its transaction may have just begun at its coordinator."""
    log = on.node.partition(T0)
    assert log is not None

    def write() -> None:
        entry = log.producers.get(held[0])
        assert entry is not None
        log.producers._entries[held[0]] = entry._replace(last_timestamp_ms=entry.last_timestamp_ms + 1)

    cluster.while_asked = write


def is_away(cluster: Cluster, on: TxnNode, held: tuple[int, int]) -> None:
    unreachable(cluster)


@pytest.mark.parametrize("what", [holds, moves, writes, is_away])
async def test_else_it_is_left_alone(
    what: Callable[[Cluster, TxnNode, tuple[int, int]], None], autojump_clock: MockClock
) -> None:
    async with running(*ABORTING) as on:
        cluster, held = await with_others(on)
        what(cluster, on, held)
        await trio.sleep(10 * MINUTE_S)
        assert cluster.asked > 10
        assert (on.node.hanging.aborted, on.node.hanging.hanging) == (0, ())
        assert await on.markers(T0) == []
        cluster.while_asked = lambda: None
        cluster.held = set()
        await trio.sleep(5 * MINUTE_S)
        assert on.node.hanging.aborted == 1, "a check later it is proved"
