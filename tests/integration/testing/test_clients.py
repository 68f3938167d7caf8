"""`fencepost.testing` under other people's clients and ours: transactions, crashes within them, lost answers."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fencepost.testing import Broker
from tests.integration.testing.writers import CLIENTS, MARKS, Writer

pytestmark = MARKS

OpenWriter = Callable[[str], Writer]


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def writer(client: Any, fencepost_broker: Broker) -> Iterator[Writer]:
    """A transactional producer with the id "billing-1", and a topic "orders" to write to."""
    fencepost_broker.create_topic("orders")
    writer: Writer = client(fencepost_broker.bootstrap, "billing-1")
    yield writer
    writer.close()


def test_readers_and_the_log_agree_on_what_counts(client: Any, writer: Writer, fencepost_broker: Broker) -> None:
    writer.send("orders", b"never")
    writer.abort()
    writer.send("orders", b"one", b"two")
    writer.commit()
    assert client.read(fencepost_broker.bootstrap, "orders", 2) == [b"one", b"two"]
    assert [record.value for record in fencepost_broker.committed("orders")] == [b"one", b"two"]
    fencepost_broker.assert_exactly_once("orders", ["one", "two"])
    assert fencepost_broker.log("orders").markers[0].verdict == "ABORT"
    assert fencepost_broker.log("orders").markers[-1].verdict == "COMMIT"
    fencepost_broker.assert_no_open_transactions()


def test_a_crash_behind_prepare_loses_and_doubles_nothing(
    client: Any, writer: Writer, fencepost_broker: Broker, request: pytest.FixtureRequest
) -> None:
    """Row T13: what is prepared is rolled forward by the next life; the client's retry finds it done."""
    if request.node.callspec.id == "kafka-python":
        pytest.skip("kafka-python 3.0.12 forgets the EndTxn if its coordinator goes away as it dials (Sender: except)")
    fault = fencepost_broker.stop_commit("prepare", then="restart")
    writer.send("orders", b"one", b"two")
    writer.commit()
    assert fault.hits == 1
    fencepost_broker.assert_exactly_once("orders", ["one", "two"])
    fencepost_broker.assert_no_open_transactions()
    writer.send("orders", b"three")
    writer.commit()
    assert client.read(fencepost_broker.bootstrap, "orders", 3) == [b"one", b"two", b"three"]


def test_a_produce_whose_answer_is_lost_is_there_once(writer: Writer, fencepost_broker: Broker) -> None:
    """Row P3: the retry is recognised by its sequence."""
    fault = fencepost_broker.drop("Produce", when="after")
    writer.send("orders", b"one")
    writer.commit()
    assert fault.hits == 1
    assert [event.text for event in fencepost_broker.journal if event.text.startswith("Produce")] != []
    fencepost_broker.assert_exactly_once("orders", ["one"])


def test_a_transaction_that_takes_too_long_is_aborted_at_once(writer: Writer, fencepost_broker: Broker) -> None:
    """Row T10, without the wait: none of these clients asks for more than a minute."""
    writer.send("orders", b"late")
    assert [one.transactional_id for one in fencepost_broker.open_transactions()] == ["billing-1"]
    fencepost_broker.clock.advance(61)
    fencepost_broker.assert_no_open_transactions()
    assert [batch.verdict for batch in fencepost_broker.log("orders")] == ["aborted", "ABORT"]
    with pytest.raises(Exception, match=r"(?i)fenc|epoch|INVALID_PRODUCER"):
        writer.commit()


def test_a_restart_is_a_pause_for_a_client(writer: Writer, fencepost_broker: Broker) -> None:
    writer.send("orders", b"before")
    fencepost_broker.restart()
    writer.send("orders", b"after")
    writer.commit()
    fencepost_broker.assert_exactly_once("orders", ["before", "after"])
