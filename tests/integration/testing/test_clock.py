"""`broker.clock`: hours pass in no time, for transactions, groups, ids, retention, and whoever waits."""

from datetime import timedelta

import pytest
import trio

import fencepost
from fencepost import sync
from fencepost.testing import Broker
from tests.integration.testing.writers import Fencepost


def test_a_transaction_lives_as_long_as_its_timeout_and_no_longer(fencepost_broker: Broker) -> None:
    """Row T10."""
    fencepost_broker.create_topic("orders")
    writer = Fencepost(fencepost_broker.bootstrap, "billing-1")
    writer.send("orders", b"late")
    (open_one,) = fencepost_broker.open_transactions()
    assert open_one.timeout_seconds is not None
    fencepost_broker.clock.advance(open_one.timeout_seconds - 10)
    (still,) = fencepost_broker.open_transactions()
    assert still.age_seconds > open_one.timeout_seconds - 11
    fencepost_broker.clock.advance(timedelta(seconds=11))
    assert fencepost_broker.open_transactions() == []
    assert fencepost_broker.log("orders").verdicts == ["aborted", "ABORT"]
    writer.close()


def test_a_member_without_a_heartbeat_loses_its_place(fencepost_broker: Broker) -> None:
    fencepost_broker.create_topic("orders")
    with (
        sync.Client(fencepost_broker.bootstrap) as client,
        client.consumer("orders", group="billing", heartbeat_interval=14, fetch_max_wait=0.1) as consumer,
    ):
        while not consumer.assignment:
            trio.run(trio.sleep, 0.01)
        assert len(fencepost_broker.groups()["billing"].members) == 1
        fencepost_broker.clock.advance(60)
        assert fencepost_broker.groups()["billing"].state in ("Empty", "PreparingRebalance")


def test_ids_expire_and_old_segments_go(fencepost_broker: Broker) -> None:
    """Rows T12 (transactional.id.expiration.ms) and L3 (retention.ms), a week at a time."""
    configs = {"retention.ms": "3600000", "segment.ms": "1000", "message.timestamp.type": "LogAppendTime"}
    fencepost_broker.create_topic("orders", configs=configs)
    writer = Fencepost(fencepost_broker.bootstrap, "billing-1")
    writer.send("orders", b"old")
    writer.commit()
    writer.close()
    with sync.Client(fencepost_broker.bootstrap) as client, client.admin() as admin:
        assert list(admin.describe_transactions()) == ["billing-1"]
        fencepost_broker.clock.advance(timedelta(days=8))
        assert admin.describe_transactions() == {}
        with client.producer() as producer:
            producer.send("orders", b"new")
    fencepost_broker.clock.advance(timedelta(minutes=1))
    assert [record.value for record in fencepost_broker.committed("orders")] == [b"new"]


def test_the_wall_clock_goes_with_it_also_while_the_broker_is_down(fencepost_broker: Broker) -> None:
    before = fencepost_broker.clock.now()
    fencepost_broker.clock.advance(3600)
    fencepost_broker.kill()
    fencepost_broker.clock.advance(3600)
    fencepost_broker.start()
    assert timedelta(hours=2) <= fencepost_broker.clock.now() - before < timedelta(hours=3)


@pytest.mark.fencepost(directory=True)
def test_what_is_due_is_done_also_where_threads_do_it(fencepost_broker: Broker) -> None:
    """Row L3 with real files, which a thread takes away: `advance` waits for it."""
    configs = {"retention.ms": "3600000", "segment.ms": "1000", "message.timestamp.type": "LogAppendTime"}
    with sync.Client(fencepost_broker.bootstrap) as client, client.producer() as producer:
        for turn in range(12):
            fencepost_broker.create_topic(f"orders-{turn}", configs=configs)
            producer.send(f"orders-{turn}", b"old")
            fencepost_broker.clock.advance(timedelta(days=1))
            producer.send(f"orders-{turn}", b"new")
            fencepost_broker.clock.advance(timedelta(minutes=6))
            assert [record.value for record in fencepost_broker.committed(f"orders-{turn}")] == [b"new"]


@pytest.mark.parametrize("step", [-1, float("inf"), float("nan")])
def test_it_does_not_go_back_nor_to_the_end_of_time(fencepost_broker: Broker, step: float) -> None:
    with pytest.raises(ValueError, match="forward"):
        fencepost_broker.clock.advance(step)
    assert fencepost_broker.topics() == {}


async def test_a_delayed_request_comes_through_when_its_time_has_come(fencepost_broker: Broker) -> None:
    """And all of the broker's methods can be called from within an event loop."""
    fencepost_broker.create_topic("orders")
    fault = fencepost_broker.delay("Produce", seconds=1000)
    async with (
        fencepost.Client(fencepost_broker.bootstrap) as client,
        client.producer() as producer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(producer.send, "orders", b"slow")
        await trio.to_thread.run_sync(fault.wait)
        assert fencepost_broker.committed("orders") == []
        fencepost_broker.clock.advance(1000)
    assert [record.value for record in fencepost_broker.committed("orders")] == [b"slow"]


def test_a_message_is_held_back_for_an_hour(fencepost_broker: Broker) -> None:
    """H1 and H3: it is no member's meanwhile, and a broker that was killed still knows its time."""
    fencepost_broker.create_topic("orders")
    with sync.Client(fencepost_broker.bootstrap) as client:
        with client.admin() as admin:
            admin.incremental_alter_configs({"share.auto.offset.reset": "earliest"}, group="billing")
        with client.producer() as producer:
            producer.send("orders", b"later")
            producer.send("orders", b"at once")
        with client.queue("orders", group="billing", max_in_flight=1, fetch_max_wait=0.1) as queue:
            messages = iter(queue)
            first = next(messages)
            first.release(delay=timedelta(hours=1))
            first.acknowledged()
            with next(messages) as second:
                assert (first.value, second.value) == (b"later", b"at once")
            second.acknowledged()
        fencepost_broker.kill()
        fencepost_broker.clock.advance(timedelta(minutes=59))
        fencepost_broker.start()
        with client.queue("orders", group="billing", fetch_max_wait=0.1) as queue:
            with client.admin() as admin:
                known = admin.list_share_group_offsets("billing", explain=True)[fencepost.TopicPartition("orders", 0)]
                assert known.states is not None
                state = known.states.ranges[0]
                assert (state.state, state.delivery_count) == ("available", 1)
                assert 0 < (state.lock_ms or 0) <= 60_000
            fencepost_broker.clock.advance(timedelta(minutes=1))
            with next(iter(queue)) as again:
                assert (again.value, again.delivery_count) == (b"later", 2)


def test_a_record_is_scheduled_for_an_hour_later(fencepost_broker: Broker) -> None:
    """H11: by the broker's clock, whatever the client's says."""
    fencepost_broker.create_topic("orders", configs={"share.not.before.enable": "true"})
    with sync.Client(fencepost_broker.bootstrap) as client:
        with client.admin() as admin:
            admin.incremental_alter_configs({"share.auto.offset.reset": "earliest"}, group="billing")
        with client.producer() as producer:
            producer.send("orders", b"later", headers=[fencepost.not_before(timedelta(hours=1))])
            producer.send("orders", b"at once")
        with client.queue("orders", group="billing", fetch_max_wait=0.1) as queue:
            messages = iter(queue)
            with next(messages) as first:
                assert first.value == b"at once"
            first.acknowledged()
            fencepost_broker.clock.advance(timedelta(hours=1))
            with next(messages) as second:
                assert (second.value, second.delivery_count) == (b"later", 1)
