"""A broker that stops answers what it has begun, whatever the moment in which it was told to."""

import socket
from collections.abc import Iterator

import pytest

from fencepost.broker.network.connection import Connection
from fencepost.broker.network.poller import Work
from fencepost.broker.network.response_queue import ResponseQueue
from fencepost.protocol.errors import ErrorCode
from fencepost.testing import Broker
from tests.kit.wire import Wire, batch_of


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({"durability": "fsync"}) as broker:
        yield broker


def test_a_write_is_begun_before_its_task_wakes(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the plain function that appended and the task that waits for the flush, the drain may look."""
    served = Connection.send_responses
    looked = []

    def serve_and_drain(connection: Connection) -> Work | None:
        work = served(connection)
        if work is not None and not looked:
            looked.append(connection.idle)
            if connection.idle:
                connection.cancel("the broker stops")
        return work

    with Wire(socket.create_connection(("127.0.0.1", broker.port))) as wire:
        wire.create_topic("t")
    monkeypatch.setattr(ResponseQueue, "try_send", lambda _queue: False)
    monkeypatch.setattr(Connection, "send_responses", serve_and_drain)
    with Wire(socket.create_connection(("127.0.0.1", broker.port))) as wire:
        assert wire.produce("t", batch_of(b"x")).error_code == ErrorCode.NONE
    assert looked == [False]
