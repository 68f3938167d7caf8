"""`fencepost.testing.Broker`: lives and deaths, storage, what it tells of topics, logs, groups and transactions."""

import socket
from contextlib import suppress
from pathlib import Path

import pytest

import fencepost
from fencepost import TopicPartition, sync
from fencepost.broker.config.broker_config import ConfigError
from fencepost.broker.log.storage.lock import DirectoryInUse
from fencepost.testing import Broker, BrokerGoneError
from tests.integration.testing.writers import Fencepost


def test_a_kill_keeps_what_was_stored_and_cuts_every_connection(fencepost_broker: Broker) -> None:
    fencepost_broker.create_topic("orders")
    port = fencepost_broker.port
    with sync.Client(fencepost_broker.bootstrap) as client, client.producer() as producer:
        producer.send("orders", b"one", key=b"k")
        with socket.create_connection(("127.0.0.1", port), 100) as connection:
            fencepost_broker.kill()
            with suppress(ConnectionResetError):  # where the broker had not accepted it yet
                assert connection.recv(1) == b""
        assert not fencepost_broker.running
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), 10)
        with pytest.raises(BrokerGoneError, match="does not run"):
            fencepost_broker.log("orders")
        fencepost_broker.start()
        producer.send("orders", b"two")
    assert fencepost_broker.port == port
    assert [(r.offset, r.key, r.value) for r in fencepost_broker.committed("orders")] == [
        (0, b"k", b"one"),
        (1, None, b"two"),
    ]


def test_files_outlive_the_broker_and_belong_to_one_at_a_time(tmp_path: Path) -> None:
    with Broker(directory=tmp_path) as broker:
        broker.create_topic("orders")
        writer = Fencepost(broker.bootstrap, "billing-1")
        writer.send("orders", b"one")
        writer.commit()
        writer.close()
        broker.restart()
        with pytest.raises(DirectoryInUse):
            Broker(directory=tmp_path).start()
        broker.stop()
        assert broker.journal.tail(1).endswith("stopped in order")
        assert not broker.running
    with Broker(directory=tmp_path) as again:
        again.assert_exactly_once("orders", ["one"])
        assert (tmp_path / "orders-0").is_dir()


def test_settings_are_the_brokers_own_and_wrong_ones_are_named() -> None:
    with Broker({"num.partitions": "3"}) as broker, sync.Client(broker.bootstrap) as client, client.admin() as admin:
        admin.create_topics("orders")
        assert broker.topics() == {"orders": 3}
        broker.delete_topic("orders")
        assert broker.topics() == {}
    with pytest.raises(ConfigError, match=r"num\.partitions"):
        Broker({"num.partition": "3"}).start()
    broker = Broker()
    assert not broker.running
    broker.close()


def test_a_log_tells_the_story_of_its_transactions(fencepost_broker: Broker) -> None:
    """Verdicts by the markers of the same producer (I2); what lies above the LSO is not for committed readers (I1)."""
    fencepost_broker.create_topic("orders")
    one, other = (Fencepost(fencepost_broker.bootstrap, name) for name in ("one", "other"))
    one.send("orders", b"a")
    other.send("orders", b"b")
    other.abort()
    other.send("orders", b"c")
    other.commit()
    log = fencepost_broker.log("orders")
    assert log.verdicts == ["open", "aborted", "ABORT", "committed", "COMMIT"]
    assert (log.start, log.lso, log.high_watermark, log.end) == (0, 0, 5, 5)
    assert log.committed == []
    one.commit()
    log = fencepost_broker.log("orders")
    assert log.lso == log.end == 6
    assert [(record.offset, record.value) for record in log.committed] == [(0, b"a"), (3, b"c")]
    assert [r.value for r in fencepost_broker.records("orders", isolation="read_uncommitted")] == [b"a", b"b", b"c"]
    assert [batch.verdict for batch in log.markers] == ["ABORT", "COMMIT", "COMMIT"]
    assert log[1].transactional
    assert not log[1].is_control
    assert log[2].producer_id == log[1].producer_id
    shown = repr(log).splitlines()
    assert shown[0] == "<log of orders-0: offsets 0 to 6, last stable 6, high watermark 6"
    assert shown[2].split() == ["1", "aborted", "producer", "2", "epoch", "0:", "b'b'"]
    assert repr(log.records[0]) == "<orders-0@0 b'a' committed>"
    for writer in (one, other):
        writer.close()


def test_compressed_and_plain_batches_are_read_alike(fencepost_broker: Broker) -> None:
    fencepost_broker.create_topic("orders")
    with (
        sync.Client(fencepost_broker.bootstrap) as client,
        client.producer(compression="zstd") as producer,
        producer.batch() as batch,
    ):
        batch.send_many("orders", ((b"k%d" % number, b"v" * 100) for number in range(100)))
    log = fencepost_broker.log("orders")
    assert {batch.verdict for batch in log} == {"plain"}
    assert [record.key for record in log.committed] == [b"k%d" % number for number in range(100)]
    fencepost_broker.assert_exactly_once("orders", [f"k{number}" for number in range(100)], by="key")


def test_what_is_not_there_is_named(fencepost_broker: Broker) -> None:
    fencepost_broker.create_topic("orders")
    with pytest.raises(LookupError, match="no partition 7 of 'orders': the topic has 1 partitions"):
        fencepost_broker.log("orders", 7)
    with pytest.raises(LookupError, match="there is no topic 'invoices'"):
        fencepost_broker.committed("invoices")
    with pytest.raises(ValueError, match="TOPIC_ALREADY_EXISTS"):
        fencepost_broker.create_topic("orders")
    with pytest.raises(ValueError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        fencepost_broker.delete_topic("invoices")


def test_offsets_count_when_their_transaction_is_committed(fencepost_broker: Broker) -> None:
    """Row T5: offsets are pending until the marker is there (T8)."""
    fencepost_broker.create_topic("orders")
    fencepost_broker.create_topic("invoices")
    with (
        sync.Client(fencepost_broker.bootstrap) as client,
        client.producer() as plain,
        client.consumer("orders", group="billing", auto_offset_reset="earliest") as consumer,
        client.transactional_producer("billing-1") as producer,
    ):
        plain.send("orders", b"one")
        batch = next(consumer.batches())
        with producer.transaction() as transaction:
            transaction.send_many("invoices", ((None, record.value) for record in batch))
            transaction.send_offsets(consumer)
            assert fencepost_broker.offsets("billing") == {}
        assert fencepost_broker.offsets("billing") == {TopicPartition("orders", 0): 1}
        group = fencepost_broker.groups()["billing"]
        assert (group.state, group.offsets) == ("Stable", {TopicPartition("orders", 0): 1})
    assert fencepost_broker.groups()["billing"].members == ()


def test_who_holds_what_is_told_in_full(fencepost_broker: Broker) -> None:
    fencepost_broker.create_topic("orders")
    fencepost_broker.assert_no_open_transactions()
    writer = Fencepost(fencepost_broker.bootstrap, "billing-1")
    writer.send("orders", b"one", b"two")
    with pytest.raises(AssertionError) as caught:
        fencepost_broker.assert_no_open_transactions()
    head, first, held = str(caught.value).splitlines()
    assert head == "1 transaction is not over:"
    assert first.startswith("  'billing-1': Ongoing for ")
    assert first.endswith("(producer 1 epoch 0, client 'fencepost' at 127.0.0.1)")
    assert held.strip() == "holds orders-0 from offset 0, read_committed waits there with 2 offsets behind it"
    writer.close()


def test_what_is_lost_doubled_or_wrong_is_told_with_its_place(fencepost_broker: Broker) -> None:
    fencepost_broker.create_topic("orders")
    writer = Fencepost(fencepost_broker.bootstrap, "billing-1")
    writer.send("orders", b"gone")
    writer.abort()
    writer.send("orders", b"twice", b"twice", b"extra", b"right")
    writer.commit()
    writer.close()
    with pytest.raises(AssertionError) as caught:
        fencepost_broker.assert_exactly_once("orders", [b"gone", "never", "twice", b"right"])
    assert str(caught.value).splitlines()[1:] == [
        "  missing b'gone': written at orders-0@0, aborted",
        "  missing b'never': was never written",
        "  too often b'twice': orders-0@2, orders-0@3, 1 expected",
        "  unexpected b'extra': orders-0@4",
    ]
    fencepost_broker.assert_exactly_once("orders", ["twice", "right", "twice", "extra"])
    fencepost_broker.assert_exactly_once(
        "orders", [(None, "twice"), (None, "twice"), (None, "extra"), (None, "right")], by="item"
    )
    fencepost_broker.assert_exactly_once("orders", [5, 5, 5, 5], by=lambda record: len(record.value or b""))


def test_brokers_do_not_know_of_each_other(fencepost_broker: Broker) -> None:
    with Broker() as other:
        other.create_topic("orders")
        assert other.port != fencepost_broker.port
        assert fencepost_broker.topics() == {}
        other.clock.advance(3600)
        assert (other.clock.now() - fencepost_broker.clock.now()).total_seconds() > 3500
        assert "put forward" not in fencepost_broker.journal.tail()


async def test_it_works_inside_a_trio_program(fencepost_broker: Broker) -> None:
    fencepost_broker.create_topic("orders")
    async with (
        fencepost.Client(fencepost_broker.bootstrap) as client,
        client.transactional_producer("billing-1") as producer,
    ):
        async with producer.transaction() as transaction:
            await transaction.send("orders", b"one")
            await producer.flush()
            assert len(fencepost_broker.open_transactions()) == 1
        fencepost_broker.assert_exactly_once("orders", ["one"])


@pytest.mark.parametrize("settings", [{}, {"durability": "fsync"}], ids=["memory", "files with fsync"])
def test_kills_under_load_lose_and_double_nothing_that_was_acknowledged(
    tmp_path: Path, settings: dict[str, str]
) -> None:
    """Row P3 with crashes: what was acknowledged is in the store, and a retry after the restart is known there."""
    with Broker(settings, directory=tmp_path if settings else None) as broker:
        broker.create_topic("orders")
        with (
            sync.Client(broker.bootstrap, retry_backoff=0.01) as client,
            client.producer(linger=0) as producer,
            producer.batch() as batch,
        ):
            for number in range(30):
                batch.send_many("orders", ((None, b"%d-%d" % (number, place)) for place in range(50)))
                if number % 10 == 5:
                    broker.restart()
        broker.assert_exactly_once("orders", [f"{number}-{place}" for number in range(30) for place in range(50)])
