"""What the objects of the client look like in a log, a debugger and a notebook."""

from collections.abc import Callable
from typing import Any, Protocol

import pytest
import trio

import fencepost
from fencepost import TopicPartition, sync
from fencepost.client.config import ConsumerConfig
from fencepost.client.config_parsing import parse
from fencepost.client.consumer.consumed import ConsumerBatch
from fencepost.protocol.records import Record
from tests.architecture.public_names import public_classes
from tests.kit.scripted_broker import ScriptedBroker

Script = Callable[..., Any]


@pytest.mark.parametrize("name", public_classes())
def test_no_public_class_shows_an_address_in_memory(name: str) -> None:
    kind: Any = public_classes()[name]
    if Protocol in kind.__bases__:
        return  # its objects are a program's
    assert kind.__repr__ is not object.__repr__


async def test_what_a_client_hands_out(script: Script) -> None:
    broker: ScriptedBroker = await script()
    client = fencepost.Client(broker.address)
    assert repr(client) == f"<Client of {broker.address}: not open>"
    async with client as kafka:
        assert repr(client) == f"<Client of {broker.address}: open>"
        assert repr(kafka.admin()) == f"<Admin for {broker.address}>"
        assert repr(kafka.producer()) == f"<Producer for {broker.address}>"
        assert repr(kafka.transactional_producer("x")) == "<TransactionalProducer 'x'>"
        assert repr(kafka.two_phase_producer("x")) == "<TwoPhaseProducer 'x'>"
        assert repr(kafka.consumer("t", "u", group="g")) == "<Consumer of t, u: group 'g', 0 partitions assigned>"
        async with kafka.consumer("t") as consumer:
            assert repr(consumer) == "<Consumer of t: no group, 1 partitions assigned>"
        async with kafka.producer() as producer:
            delivery = await producer.submit("t", b"v")
            with trio.fail_after(5):
                await delivery.wait()
            assert repr(delivery) == "<Delivery to t-0: done>"
    assert repr(client) == f"<Client of {broker.address}: closed>"


def test_a_blocking_client() -> None:
    assert repr(sync.Client("[::1]:9092,a:1")) == "<fencepost.sync <Client of [::1]:9092,a:1: not open>>"


def test_a_batch_says_which_records_it_has() -> None:
    records = [Record(offset, 0, None, b"v", ()) for offset in (5, 6, 9)]
    runs = [(TopicPartition("t", number), records) for number in range(5)]
    config = parse(ConsumerConfig, {})
    assert repr(ConsumerBatch(runs[:1], config)) == "<ConsumerBatch of 3 records: t-0 5 to 9>"
    assert repr(ConsumerBatch(runs, config)) == (
        "<ConsumerBatch of 15 records: t-0 5 to 9, t-1 5 to 9, t-2 5 to 9 and 2 more partitions>"
    )
