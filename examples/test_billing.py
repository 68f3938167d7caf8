"""Test a program with the real broker in its own process: pytest examples/test_billing.py

`bill` is the program. The tests kill the broker inside its commit, cut its connection and start a second instance. Each
order has to be billed once.
"""

from typing import Literal

import pytest

from fencepost import FencedError
from fencepost.sync import Client
from fencepost.testing import Broker


def bill(bootstrap: str) -> None:
    """Write an invoice for each order that is there."""
    with (
        Client(bootstrap, timeout=30) as kafka,
        kafka.consumer("orders", group="billing") as consumer,
        kafka.transactional_producer("billing-1") as producer,
    ):
        for batch in consumer.read_to_end():
            with producer.transaction() as txn:
                txn.send_many("invoices", ((r.key, b"invoice for " + (r.value or b"")) for r in batch))
                txn.send_offsets(consumer)


def order(bootstrap: str, *values: bytes) -> None:
    """Place orders."""
    with Client(bootstrap, timeout=30) as kafka, kafka.producer() as producer:
        producer.send_many("orders", ((None, value) for value in values))


@pytest.fixture
def broker(fencepost_broker: Broker) -> Broker:
    """A broker with two topics and two orders."""
    fencepost_broker.create_topic("orders")
    fencepost_broker.create_topic("invoices", partitions=2)
    order(fencepost_broker.bootstrap, b"tea", b"cake")
    return fencepost_broker


def test_each_order_is_billed_once(broker: Broker) -> None:
    bill(broker.bootstrap)
    bill(broker.bootstrap)
    broker.assert_exactly_once("invoices", ["invoice for tea", "invoice for cake"])


@pytest.mark.parametrize("step", ["prepare", "marker", "markers"])
def test_the_broker_dies_inside_the_commit(broker: Broker, step: Literal["prepare", "marker", "markers"]) -> None:
    broker.stop_commit(step, then="restart")
    bill(broker.bootstrap)
    bill(broker.bootstrap)
    broker.assert_exactly_once("invoices", ["invoice for tea", "invoice for cake"])
    broker.assert_no_open_transactions()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("api", ["Produce", "TxnOffsetCommit", "EndTxn"])
def test_the_connection_is_cut(broker: Broker, api: str, when: Literal["before", "after"]) -> None:
    broker.drop(api, when=when)
    bill(broker.bootstrap)
    bill(broker.bootstrap)
    broker.assert_exactly_once("invoices", ["invoice for tea", "invoice for cake"])


def bill_as_a_zombie(bootstrap: str) -> None:
    """Be slow: a second instance does the work, and only then commit."""
    with (
        Client(bootstrap, timeout=30) as kafka,
        kafka.transactional_producer("billing-1") as first,
        first.transaction() as txn,
    ):
        txn.send("invoices", b"invoice of a zombie")
        bill(bootstrap)


def test_a_second_instance_shuts_out_the_first(broker: Broker) -> None:
    with pytest.raises(FencedError):
        bill_as_a_zombie(broker.bootstrap)
    broker.assert_exactly_once("invoices", ["invoice for tea", "invoice for cake"])
