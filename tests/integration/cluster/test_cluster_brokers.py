"""Broker processes over a real PostgreSQL: one is active, the others stand by."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from fencepost.broker.cluster.reading.folding import heads_of
from fencepost.client import Client
from fencepost.protocol.control_records import read_marker
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.api03_metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.messages.api26_end_txn import EndTxnRequest
from fencepost.protocol.record_batch import build_batch
from tests.kit.cluster_processes import ClusterProcesses
from tests.kit.cluster_topic import SECONDS, TOPIC, create, everything
from tests.kit.postgres_server import PostgresServer
from tests.kit.waiting import until
from tests.kit.wire import END_TXN, NOW_MS, PRODUCE, ConnectionEnded, Wire, produce_request

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@pytest.fixture
def cluster(server: PostgresServer, tmp_path: Path) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(tmp_path, server) as processes:
        yield processes


def marker_epochs(cluster: ClusterProcesses) -> list[int]:
    """The coordinator epochs of the topic's markers, by time."""
    found = []
    for head in cluster.engine.heads():
        if head.name.startswith(TOPIC):
            for row in cluster.engine.rows(head.log, 0, head.next):
                for data, header in heads_of(row, head.name):
                    if header.is_control:
                        found.append((header.max_timestamp, read_marker(data, 0, header).coordinator_epoch))
    return [epoch for _, epoch in sorted(found)]


async def test_what_is_written_is_read_by_the_next_broker(cluster: ClusterProcesses) -> None:
    """SIGTERM hands over; the standby reads all from the stores, whatever was inline and what in objects."""
    first, second = cluster.start(1), cluster.start(2)
    assert (first.facts["role"], second.facts["role"]) == ("active", "standby")
    async with Client(cluster.bootstrap) as kafka:
        await create(kafka)
        async with kafka.producer() as producer:
            await producer.send(TOPIC, b"small")
            await producer.send(TOPIC, b"large" * 20_000)
    assert cluster.files(), "the large one is in an object"
    first.signal(signal.SIGTERM)
    seconds = cluster.wait_active(2)
    assert first.wait() == 0
    assert seconds < 5, "a handover waits for no lease"
    values = [value for _, value in await everything(second.address, 2)]
    assert values == [b"small", b"large" * 20_000]


async def test_acknowledged_records_survive_the_kill_of_the_active_broker(cluster: ClusterProcesses) -> None:
    """Each is there once and in order, and the idempotent producer goes on with the next broker."""
    first = cluster.start(1)
    cluster.start(2)
    async with Client(cluster.bootstrap) as kafka:
        await create(kafka)
        async with kafka.producer() as producer:
            with trio.fail_after(SECONDS):
                for number in range(400):
                    if number == 200:
                        first.kill()
                    await producer.send(TOPIC, b"%d" % number)
    assert cluster.owner().broker == 2
    found = await everything(cluster.brokers[2].address, 400)
    assert found == [(number, b"%d" % number) for number in range(400)]


async def test_transactions_go_on_with_the_next_broker(cluster: ClusterProcesses) -> None:
    """The active broker is killed within a transaction, and later between two: no transaction is torn or doubled."""
    first = cluster.start(1)
    cluster.start(2)
    async with Client(cluster.bootstrap) as kafka:
        await create(kafka, partitions=2)
        async with kafka.transactional_producer("one") as producer:
            with trio.fail_after(SECONDS):
                async with producer.transaction() as txn:
                    await txn.send(TOPIC, b"0", partition=0)
                    await producer.flush()
                    first.kill()
                    await txn.send(TOPIC, b"0", partition=1)
                first.start()
                async with producer.transaction() as txn:
                    await txn.send(TOPIC, b"1", partition=0)
                cluster.brokers[2].signal(signal.SIGTERM)
                async with producer.transaction() as txn:
                    await txn.send(TOPIC, b"2", partition=1)
    assert cluster.owner().broker == 1
    assert sorted(value for _, value in await everything(first.address, 4)) == [b"0", b"0", b"1", b"2"]
    epochs = marker_epochs(cluster)
    assert epochs == sorted(epochs), "row T9: an older coordinator's marker would be refused"
    assert len(set(epochs)) > 1, "each coordinator had the leader epoch of its partition"


async def test_a_transaction_ends_in_one_commit(cluster: ClusterProcesses) -> None:
    """The decision, all markers, the offsets and the completion: a crash leaves nothing to resume."""
    cluster.start(1)
    async with Client(cluster.bootstrap) as kafka:
        await create(kafka, partitions=8)
        async with kafka.transactional_producer("one") as producer, kafka.consumer(TOPIC, group="g") as consumer:
            async with producer.transaction() as txn:  # makes the logs of the internal topics, too
                await txn.send(TOPIC, b"first", partition=0)
            with trio.fail_after(SECONDS):
                await anext(aiter(consumer))
            async with producer.transaction() as txn:
                for number in range(8):
                    await txn.send(TOPIC, b"value", partition=number)
                await txn.send_offsets(consumer)
                await producer.flush()
                before = cluster.commits()
            assert cluster.commits() - before <= 2, "the flush at the end, and the end of the transaction"


async def test_a_metadata_transaction_is_one_commit(cluster: ClusterProcesses) -> None:
    """KIP-868: 25,000 partitions do not fit into one append. A crash leaves no open transaction."""
    cluster.start(1)
    standby = cluster.start(2)
    async with Client(cluster.bootstrap) as kafka:
        await create(kafka)
        before = cluster.commits()
        async with kafka.admin() as admin:
            await admin.create_topics("wide", partitions=25_000)
        assert cluster.commits() - before == 1
    with Wire(standby.connect()) as wire:
        asked = MetadataRequest(topics=[MetadataRequestTopic(name="wide")])
        until(lambda: len(wire.call(3, 9, asked).topics[0].partitions) == 25_000)


async def test_a_paused_broker_changes_nothing_and_stands_by_when_it_resumes(cluster: ClusterProcesses) -> None:
    """Clocks decide who is active, never what is true: the zombie's commit matches no row."""
    first, second = cluster.start(1), cluster.start(2)
    async with Client(cluster.bootstrap, request_timeout=2) as kafka:
        await create(kafka)
        async with kafka.producer() as producer:
            await producer.send(TOPIC, b"before")
            first.pause()
            cluster.wait_active(2)
            with trio.fail_after(SECONDS):
                await producer.send(TOPIC, b"after")
            first.resume()
            await producer.send(TOPIC, b"later")
    until(lambda: "lost its place" in first.log() or "taken over" in first.log())
    assert cluster.owner().broker == 2
    assert [value for _, value in await everything(second.address, 3)] == [b"before", b"after", b"later"]
    until(lambda: {one.broker: one.left for one in cluster.engine.members()} == {1: False, 2: False})
    assert await everything(first.address, 3), "the standby knows the active broker"


def test_a_standby_forwards_what_clients_ask_any_broker_for(cluster: ClusterProcesses) -> None:
    """A client whose every request happens to go to the standby gets topics and producer ids all the same."""
    cluster.start(1)
    standby = cluster.start(2)
    with Wire(standby.connect()) as wire:
        wire.create_topic("made")

        def leaders(topic: str) -> list[int]:
            asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True)
            return [one.leader_id for one in wire.call(3, 9, asked).topics[0].partitions]

        until(lambda: leaders("made") == [1])
        until(lambda: leaders("asked") == [1])
        producer_id, epoch = wire.init_producer_id()
        assert (producer_id >= 0, epoch) == (True, 0)


def test_an_answer_that_writes_nothing_is_confirmed(cluster: ClusterProcesses) -> None:
    """A resumed broker finds "committed already" in its memory. Without asking the database it could say so of a later
    transaction that another broker has aborted.
    """
    first = cluster.start(1)
    cluster.start(2)
    with Wire(first.connect()) as wire:
        wire.create_topic(TOPIC)
        producer_id, epoch = wire.init_producer_id("one")
        wire.add_partitions("one", (producer_id, epoch), TOPIC, 0)
        ask = EndTxnRequest(transactional_id="one", producer_id=producer_id, producer_epoch=epoch, committed=True)
        assert wire.call(END_TXN, 3, ask).error_code == ErrorCode.NONE
        assert wire.call(END_TXN, 3, ask).error_code == ErrorCode.NONE, "a repeated request gets the same answer"
        first.pause()
        cluster.wait_active(2)
        wire.send(END_TXN, 3, ask)
        first.resume()
        wire.expect_end()


def test_a_standby_gives_producer_ids_of_the_controller_or_closes_the_connection(cluster: ClusterProcesses) -> None:
    """With rules, too. librdkafka would ask the same broker again after any error code."""
    rules = {"authorizer.class.name": AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}
    lease = {"cluster.lease.ms": "60000"}
    first, standby = cluster.start(1, **rules, **lease), cluster.start(2, **rules, **lease)
    with Wire(standby.connect()) as wire:
        producer_id, epoch = wire.init_producer_id()
        assert (producer_id >= 0, epoch) == (True, 0)
    first.kill()
    with Wire(standby.connect()) as wire, pytest.raises(ConnectionEnded):
        wire.init_producer_id()
    assert "this broker gives no producer ids" in standby.log()
    assert "Traceback" not in standby.log()


async def test_commits_wait_while_the_database_restarts(cluster: ClusterProcesses) -> None:
    """kill -9 of PostgreSQL: nothing acknowledged is lost, nothing is doubled, and the broker needs no restart."""
    broker = cluster.start(1, **{"cluster.lease.ms": "60000"})
    async with Client(cluster.bootstrap) as kafka:
        await create(kafka)
        async with kafka.producer() as producer, trio.open_nursery() as nursery:

            async def write() -> None:
                for number in range(300):
                    await producer.send(TOPIC, b"%d" % number)

            nursery.start_soon(write)
            await trio.sleep(0.3)
            cluster.server.kill()
            await trio.to_thread.run_sync(cluster.server.start)
    assert await everything(broker.address, 300) == [(number, b"%d" % number) for number in range(300)]
    assert "available again" in broker.log()


def test_a_broker_that_is_cut_off_leads_nothing_once_its_lease_ends(cluster: ClusterProcesses) -> None:
    """Its records may be old then, because another broker may be active: NOT_LEADER_OR_FOLLOWER sends clients there."""
    broker = cluster.start(1)
    with Wire(broker.connect()) as wire:
        wire.create_topic(TOPIC)

        def answer() -> ErrorCode:
            return ErrorCode(wire.offset_of(TOPIC, -1).error_code)

        assert answer() is ErrorCode.NONE
        cluster.server.kill()
        until(lambda: answer() is ErrorCode.NOT_LEADER_OR_FOLLOWER)
        cluster.server.start()
        until(lambda: answer() is ErrorCode.NONE)


def test_a_broker_stops_while_the_database_is_gone(cluster: ClusterProcesses) -> None:
    """What waits for a commit is not acknowledged, and nothing waits for the database any more."""
    broker = cluster.start(1)
    with Wire(broker.connect()) as wire:
        wire.create_topic(TOPIC)
        cluster.server.kill()
        try:
            wire.send(PRODUCE, 9, produce_request(TOPIC, build_batch([(NOW_MS, None, b"value", ())])))
            until(lambda: "commits wait for it" in broker.log())
            broker.signal(signal.SIGTERM)
            assert broker.wait() == 0
        finally:
            cluster.server.start()


def test_sigterm_ends_a_broker_that_has_not_noticed_that_the_database_is_gone(cluster: ClusterProcesses) -> None:
    """What waits for the last commit is not acknowledged; the broker waits for it as long as a lease."""
    broker = cluster.start(1, **{"cluster.lease.ms": "5000", "cluster.linger.ms": "600000"})
    with Wire(broker.connect()) as wire:
        wire.create_topic(TOPIC)
        wire.send(PRODUCE, 9, produce_request(TOPIC, build_batch([(NOW_MS, None, b"large" * 20_000, ())])))
        cluster.server.kill()
        try:
            broker.signal(signal.SIGTERM)
            assert broker.wait() == 0
        finally:
            cluster.server.start()
        with pytest.raises(ConnectionEnded):
            wire.receive(PRODUCE, 9)
