"""Transactions whose coordinator and partitions are on different cores, of which one dies or stands still."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from signal import SIGCONT, SIGSTOP
from typing import Any

import pytest

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from fencepost.protocol.messages.api66_list_transactions import ListTransactionsRequest
from tests.kit.broker_process import BrokerProcess
from tests.kit.cores_broker import GROUP, Cores, wire_to
from tests.kit.cores_transactions import Producer, begin, committed, end, write
from tests.kit.wire import TXN_OFFSET_COMMIT, Wire, batch_of, produce_request, txn_offset_request

CORES = 3
PRODUCE, WRITE_TXN_MARKERS, LIST_TRANSACTIONS = 0, 27, 66


@pytest.fixture(scope="module")
def cores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cores]:
    work_dir = tmp_path_factory.mktemp("cores")
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with BrokerProcess(work_dir, data_dir=work_dir / "data", settings=settings, cores=CORES) as broker:
        yield Cores(broker)


@pytest.fixture
def topic(cores: Cores, request: pytest.FixtureRequest) -> str:
    name = str(request.node.name).replace("[", "-").rstrip("]")
    leaders = cores.create(name)
    assert sorted(leaders) == [0, 1, 2]
    return name


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("at", range(CORES))
def test_a_decision_reaches_all_cores(cores: Cores, topic: str, at: int, commit: bool) -> None:
    """KIP-98: the coordinator writes markers to the leaders of all partitions, on whatever core it is."""
    name = cores.name_at(at, prefix=topic)
    producer = begin(cores, name)
    write(cores, topic, name, producer)
    end(cores, name, producer, commit=commit)
    assert committed(cores, topic) == [[b"v"] if commit else []] * 3


@pytest.mark.parametrize("at", range(CORES))
def test_a_coordinator_that_dies_between_decision_and_marker_ends_the_transaction(
    cores: Cores, topic: str, at: int
) -> None:
    """KIP-98: markers of a Prepare record that was loaded are sent. The client asks again, and has its answer."""
    name, broker = cores.name_at(at, prefix=topic), cores.broker
    producer = begin(cores, name)
    write(cores, topic, name, producer)
    leader = next(core for core in cores.numbers if core != at)
    broker.signal_core(leader, SIGSTOP)  # its marker cannot be written
    try:
        with wire_to(broker, at) as wire:
            wire.send(26, 5, end_request(name, producer))
            time.sleep(0.5)  # long enough for the Prepare record to be durable
            broker.kill_core(at)
    finally:
        broker.signal_core(leader, SIGCONT)
    # The same request once more, as a client whose answer was lost (KIP-890: an epoch bump makes it harmless).
    end(cores, name, producer, commit=True)
    assert committed(cores, topic) == [[b"v"]] * 3


def test_a_leader_that_dies_before_its_marker_gets_it_later(cores: Cores, topic: str) -> None:
    """A marker is sent again until its partition has it (TransactionMarkerChannelManager)."""
    name, broker = cores.name_at(1, prefix=topic), cores.broker
    producer = begin(cores, name)
    write(cores, topic, name, producer)
    broker.signal_core(2, SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(end, cores, name, producer, commit=True)
        time.sleep(0.5)
        broker.kill_core(2)
        after = asked.result(60)
    assert committed(cores, topic) == [[b"v"]] * 3
    write(cores, topic, name, after, value=b"w")
    end(cores, name, after, commit=False)
    assert committed(cores, topic) == [[b"v"]] * 3


@pytest.mark.parametrize("fate", ["stands", "dies"])
def test_the_only_other_core_gets_its_marker_late(cores: Cores, topic: str, fate: str) -> None:
    """The same where one other core is asked. EndTxn is answered within 5 s (decision 0005)."""
    name, broker = cores.name_at(1, prefix=topic), cores.broker
    leaders, producer = cores.leaders(topic), begin(cores, name)
    for round_ in range(3):  # the first markers open the connection
        for core in (1, 2):
            batch = batch_of(
                b"%d" % round_, producer_id=producer[0], producer_epoch=producer[1], base_sequence=0, transactional=True
            )
            where = leaders.index(core)
            assert cores.produce(core, topic, batch, where, version=12, transactional_id=name).error_code == 0
        if round_ < 2:
            producer = end(cores, name, producer, commit=True)
    broker.signal_core(2, SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(end, cores, name, producer, commit=True)
        time.sleep(0.5)
        broker.signal_core(2, SIGCONT) if fate == "stands" else broker.kill_core(2)
        asked.result(60)
    expected = [[b"0", b"1", b"2"] if core else [] for core in leaders]
    assert committed(cores, topic) == expected


def test_writes_that_are_sent_together_are_answered_in_their_order(cores: Cores, topic: str) -> None:
    """Kafka's brokers answer the requests of a connection in their order, also when the first one is verified
    (KIP-890) and the next ones need nothing."""
    name, leaders = cores.name_at(0, prefix=topic), cores.leaders(topic)
    core = next(one for one in cores.numbers if one)
    with wire_to(cores.broker, core) as wire:
        for _ in range(3):
            producer = begin(cores, name)
            plain = produce_request(topic, batch_of(b"plain"), partition=leaders.index(core))
            asked = [plain]
            for sequence in range(3):
                batch = batch_of(
                    b"v",
                    producer_id=producer[0],
                    producer_epoch=producer[1],
                    base_sequence=sequence,
                    transactional=True,
                )
                fields = {"partition": leaders.index(core), "transactional_id": name}
                asked += [produce_request(topic, batch, **fields), plain]
            frames = [wire.frame(PRODUCE, 12, one) for one in asked]
            wire.socket.sendall(b"".join(data for _, data in frames))
            answers = [wire.receive(PRODUCE, 12) for _ in frames]
            assert [number for number, _ in answers] == [number for number, _ in frames]
            found = [answer.responses[0].partition_responses[0] for _, answer in answers]
            assert {one.error_code for one in found} == {ErrorCode.NONE}
            offsets = [one.base_offset for one in found]
            assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))
            end(cores, name, producer, commit=True)


def test_a_marker_of_an_older_coordinator_is_refused_after_its_restart(cores: Cores, topic: str) -> None:
    """KAFKA-17754's class: with TV1 the producer's epoch is the same in its next transaction, so the coordinator's
    epoch, which rises with each start, tells a late marker from a new one (ProducerAppendInfo.checkCoordinatorEpoch).
    """
    name, broker = cores.name_at(1, prefix=topic), cores.broker
    producer = begin(cores, name)

    def transaction(sequence: int) -> None:
        def add(wire: Wire) -> int:
            wire.add_partitions(name, producer, topic, 0, 1, 2)
            return 0

        cores.retried(1, add)
        for partition, core in enumerate(cores.leaders(topic)):
            batch = batch_of(
                b"%d" % sequence,
                producer_id=producer[0],
                producer_epoch=producer[1],
                base_sequence=sequence,
                transactional=True,
            )
            cores.produce(core, topic, batch, partition, version=9, transactional_id=name)

    transaction(0)
    end(cores, name, producer, commit=True, version=3)
    assert committed(cores, topic) == [[b"0"]] * 3
    first = {
        core: coordinator_epoch(cores, topic, partition, core) for partition, core in enumerate(cores.leaders(topic))
    }
    broker.kill_core(1)
    transaction(1)
    end(cores, name, producer, commit=True, version=3)
    second = {
        core: coordinator_epoch(cores, topic, partition, core) for partition, core in enumerate(cores.leaders(topic))
    }
    assert all(second[core] > first[core] for core in second)
    transaction(2)
    for partition, core in enumerate(cores.leaders(topic)):
        late = WritableTxnMarker(
            producer_id=producer[0],
            producer_epoch=producer[1],
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
            coordinator_epoch=first[core],
            transaction_version=1,
        )
        with wire_to(broker, core) as wire:
            answer = wire.call(WRITE_TXN_MARKERS, 1, WriteTxnMarkersRequest(markers=[late]))
        (code,) = [part.error_code for one in answer.markers for name_ in one.topics for part in name_.partitions]
        assert code == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    end(cores, name, producer, commit=True, version=3)
    assert committed(cores, topic) == [[b"0", b"1", b"2"]] * 3


def test_offsets_of_a_group_on_another_core_follow_the_transaction(cores: Cores, topic: str) -> None:
    """T8, KIP-447: the marker on `__consumer_offsets` applies the offsets on that leader."""
    group, name = cores.name_at(2, GROUP, prefix=f"g-{topic}"), cores.name_at(1, prefix=topic)
    producer = begin(cores, name)
    for offset, commit in ((5, True), (7, False)):
        request = txn_offset_request(group, topic, offset, name, producer)
        code = cores.retried(
            2,
            lambda wire: wire.call(TXN_OFFSET_COMMIT, 5, request).topics[0].partitions[0].error_code,  # noqa: B023
        )
        assert code == ErrorCode.NONE
        cores.broker.kill_core(2)  # the pending offset is loaded again
        producer = end(cores, name, producer, commit=commit)
        assert fetch_offset(cores, group, topic) == 5


def test_each_core_lists_the_transactions_that_it_coordinates(cores: Cores, topic: str) -> None:
    """KIP-664: ListTransactions goes to every broker, DescribeProducers to the leader."""
    names = [cores.name_at(at, prefix=topic) for at in cores.numbers]
    producers = [begin(cores, name) for name in names]
    for name, producer in zip(names, producers, strict=True):
        write(cores, topic, name, producer)
    for at in cores.numbers:
        with wire_to(cores.broker, at) as wire:
            listed = wire.call(LIST_TRANSACTIONS, 0, ListTransactionsRequest(state_filters=["Ongoing"]))
        ours = [one.transactional_id for one in listed.transaction_states if one.transactional_id in names]
        assert ours == [names[at]]
    for partition, core in enumerate(cores.leaders(topic)):
        with wire_to(cores.broker, core) as wire:
            (answer,) = wire.producers(topic, partition)
        assert sorted(one.producer_id for one in answer.active_producers) == sorted(one for one, _ in producers)
    for name, producer in zip(names, producers, strict=True):
        end(cores, name, producer, commit=True)
    assert committed(cores, topic) == [[b"v"] * 3] * 3


def test_a_transaction_of_another_core_does_not_hang(cores: Cores, topic: str) -> None:
    """`fencepost txn hanging --repair` proves first that no coordinator will end the transaction: a live one of another
    core it knows of, and while that core does not answer, nothing is proved.
    """
    name, broker = cores.name_at(1, prefix=topic), cores.broker
    producer = begin(cores, name)
    write(cores, topic, name, producer)
    partition, core = next((n, core) for n, core in enumerate(cores.leaders(topic)) if core != 1)
    marker = WritableTxnMarker(
        producer_id=producer[0],
        producer_epoch=producer[1],
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
        coordinator_epoch=0,
        only_hanging=True,
    )

    def ask() -> int:
        with wire_to(broker, core) as wire:
            answer = wire.call(WRITE_TXN_MARKERS, 1, WriteTxnMarkersRequest(markers=[marker]))
        (code,) = [part.error_code for one in answer.markers for found in one.topics for part in found.partitions]
        return int(code)

    assert ask() == ErrorCode.INVALID_TXN_STATE
    broker.kill_core(1)  # also while it starts
    assert ask() == ErrorCode.INVALID_TXN_STATE
    end(cores, name, producer, commit=True)
    assert committed(cores, topic) == [[b"v"]] * 3


def test_no_producer_id_is_given_twice(cores: Cores) -> None:
    """KIP-360, ProducerIdControlManager: the controller reserves a block durably before it gives one of it."""
    found: list[int] = []
    for round_ in range(4):
        for at in cores.numbers:
            for _ in range(4):
                found.append(cores.retried(at, lambda wire: wire.init_producer_id(), lambda answer: 0)[0])
        cores.broker.kill_core(round_ % CORES)
    assert len(set(found)) == len(found)


def end_request(name: str, producer: Producer) -> Any:
    from fencepost.protocol.messages.api26_end_txn import EndTxnRequest

    return EndTxnRequest(transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], committed=True)


def coordinator_epoch(cores: Cores, topic: str, partition: int, core: int) -> int:
    with wire_to(cores.broker, core) as wire:
        (answer,) = wire.producers(topic, partition)
    return int(answer.active_producers[0].coordinator_epoch)


def fetch_offset(cores: Cores, group: str, topic: str) -> int:
    from fencepost.protocol.messages.api09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic

    request = OffsetFetchRequest(
        group_id=group, topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[0])], require_stable=True
    )

    def ask(wire: Wire) -> Any:
        answer = wire.call(9, 7, request)
        return answer.topics[0].partitions[0]

    deadline = time.monotonic() + 30
    while True:
        part = cores.retried(cores.coordinator(group, GROUP), ask, lambda one: int(one.error_code))
        if part.error_code != ErrorCode.UNSTABLE_OFFSET_COMMIT or time.monotonic() > deadline:
            assert part.error_code == ErrorCode.NONE, part
            return int(part.committed_offset)
        time.sleep(0.05)
